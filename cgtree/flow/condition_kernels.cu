// Sets conditions from memory, and begins draws: one thread each, on both devices.
#include "cgtree/flow/condition_kernels.h"

#include "interop/device/kernel.h"

namespace cgtree {
namespace {

struct BeginDraws {
  PhiloxRange call;
  const std::int32_t* round;
  PhiloxPosition* place;
  CGTREE_HOST_DEVICE void operator()(std::int64_t) const {
    *place = draws_of_round(call.block(0), round == nullptr ? 0 : *round);
  }
};

struct SetCondition {
  FlagInMemory flag;
  std::int64_t last;  // as wide as the rest
  ConditionHandle condition;
  CGTREE_HOST_DEVICE void operator()(std::int64_t) const {
    const std::int32_t value = flag.read();
    const bool is_outside = last >= 0 && (value < 0 || value > last);
    set_condition(condition, static_cast<std::uint32_t>(is_outside ? last : value));
  }
};

struct BeginLoop {
  std::int32_t* rounds;
  ConditionHandle condition;
  CGTREE_HOST_DEVICE void operator()(std::int64_t) const {
    *rounds = 0;
    set_condition(condition, 1);
  }
};

struct EndRound {
  FlagInMemory flag;
  std::int32_t* rounds;
  std::int32_t max_rounds;
  ConditionHandle condition;
  CGTREE_HOST_DEVICE void operator()(std::int64_t) const {
    *rounds += 1;
    set_condition(condition, flag.read() != 0 && *rounds < max_rounds ? 1 : 0);
  }
};

struct Store {
  std::int32_t* place;
  std::int32_t value;
  CGTREE_HOST_DEVICE void operator()(std::int64_t) const { *place = value; }
};

}  // namespace

void launch_begin_draws(StreamRef stream, const PhiloxRange& call, const std::int32_t* round,
                        PhiloxPosition* place) {
  parallel_for(stream, 1, BeginDraws{call, round, place});
}

void launch_set_condition(StreamRef stream, FlagInMemory flag, std::int32_t last,
                          ConditionHandle condition) {
  parallel_for(stream, 1, SetCondition{flag, last, condition});
}

void launch_begin_loop(StreamRef stream, std::int32_t* rounds, ConditionHandle condition) {
  parallel_for(stream, 1, BeginLoop{rounds, condition});
}

void launch_end_round(StreamRef stream, FlagInMemory flag, std::int32_t* rounds,
                      std::int32_t max_rounds, ConditionHandle condition) {
  parallel_for(stream, 1, EndRound{flag, rounds, max_rounds, condition});
}

void launch_store(StreamRef stream, std::int32_t* place, std::int32_t value) {
  parallel_for(stream, 1, Store{place, value});
}

}  // namespace cgtree
