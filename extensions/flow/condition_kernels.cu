// Sets conditions from memory, and begins draws: one thread each, on both devices.
#include "extensions/flow/condition_kernels.h"

#include <atomic>
#include <type_traits>

#include "interop/device/kernel.h"

namespace cgtree {
namespace {

// The parameters of kernels have no padding: readers of recordings could take a word of padding for
// an address.
template <typename Body>
void launch_one(StreamRef stream, const Body& body) {
  static_assert(std::has_unique_object_representations_v<Body>);
  parallel_for(stream, 1, body);
}

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
  std::int64_t last;
  ConditionHandle condition;
  CGTREE_HOST_DEVICE void operator()(std::int64_t) const {
    const std::int32_t value = flag.read();
    const bool is_outside = last >= 0 && (value < 0 || value > last);
    set_condition(condition, static_cast<std::uint32_t>(is_outside ? last : value));
  }
};

// For a loop, which has no condition in an eager run.
CGTREE_HOST_DEVICE inline void go_on(ConditionHandle condition, bool goes_on) {
  if (condition != ConditionHandle::kNull) set_condition(condition, goes_on ? 1 : 0);
}

struct BeginLoop {
  std::int32_t* rounds;
  ConditionHandle condition;
  RingState* ring;
  CGTREE_HOST_DEVICE void operator()(std::int64_t) const {
    if (ring != nullptr) ring->loops += 1;
    *rounds = 0;
    go_on(condition, true);
  }
};

struct EndRound {
  FlagInMemory flag;
  std::int32_t* rounds;
  std::int64_t max_rounds;
  ConditionHandle condition;
  CGTREE_HOST_DEVICE void operator()(std::int64_t) const {
    *rounds += 1;
    go_on(condition, flag.read() != 0 && *rounds < max_rounds);
  }
};

// One thread writes the row: the host sees its bytes before the number of rows that counts it.
struct EndRingRound {
  Ring ring;
  const std::uint32_t* row;
  std::uint64_t bytes;
  FlagInMemory flag;
  std::int32_t* rounds;
  std::int64_t max_rounds;
  ConditionHandle condition;

  CGTREE_HOST_DEVICE std::uint64_t stopped() const {
#if defined(__CUDA_ARCH__)
    return *static_cast<volatile std::uint64_t*>(&ring.header->stopped);
#else
    return std::atomic_ref(ring.header->stopped).load(std::memory_order_acquire);
#endif
  }
  // The host may copy a row while it is overwritten, and then discards the copy.
  CGTREE_HOST_DEVICE static void write(std::uint32_t* to, const std::uint32_t* from,
                                       std::uint64_t words) {
    for (std::uint64_t i = 0; i < words; ++i) {
#if defined(__CUDA_ARCH__)
      to[i] = from[i];
#else
      std::atomic_ref(to[i]).store(from[i], std::memory_order_relaxed);
#endif
    }
  }
  CGTREE_HOST_DEVICE void publish(std::uint64_t written) const {
#if defined(__CUDA_ARCH__)
    __threadfence_system();
    *static_cast<volatile std::uint64_t*>(&ring.header->written) = written;
#else
    std::atomic_ref(ring.header->written).store(written, std::memory_order_release);
#endif
  }
  CGTREE_HOST_DEVICE void operator()(std::int64_t) const {
    RingState& state = *ring.state;
    const std::int32_t round = (*rounds)++;
    const bool goes_on = flag.read() != 0 && round + 1 < max_rounds && stopped() < state.loops;
    const RingSlot head = {state.loops, round, static_cast<std::uint32_t>(bytes), goes_on ? 0u : 1u,
                           0};
    auto* const to = reinterpret_cast<std::uint32_t*>(slot_of(ring, state.written));
    constexpr std::uint64_t kHead = sizeof(RingSlot) / 4;
    write(to, reinterpret_cast<const std::uint32_t*>(&head), kHead);
    write(to + kHead, row, bytes / 4);
    publish(++state.written);
    state.goes_on = goes_on ? 1 : 0;
    go_on(condition, goes_on);
  }
};

}  // namespace

void launch_begin_draws(StreamRef stream, const PhiloxRange& call, const std::int32_t* round,
                        PhiloxPosition* place) {
  launch_one(stream, BeginDraws{call, round, place});
}

void launch_set_condition(StreamRef stream, FlagInMemory flag, std::int32_t last,
                          ConditionHandle condition) {
  launch_one(stream, SetCondition{flag, last, condition});
}

void launch_begin_loop(StreamRef stream, std::int32_t* rounds, ConditionHandle condition,
                       RingState* ring) {
  launch_one(stream, BeginLoop{rounds, condition, ring});
}

void launch_end_round(StreamRef stream, FlagInMemory flag, std::int32_t* rounds,
                      std::int32_t max_rounds, ConditionHandle condition) {
  launch_one(stream, EndRound{flag, rounds, max_rounds, condition});
}

void launch_end_ring_round(StreamRef stream, const Ring& ring, const void* row, std::uint32_t bytes,
                           FlagInMemory flag, std::int32_t* rounds, std::int32_t max_rounds,
                           ConditionHandle condition) {
  launch_one(stream, EndRingRound{ring, static_cast<const std::uint32_t*>(row), bytes, flag, rounds,
                                  max_rounds, condition});
}

}  // namespace cgtree
