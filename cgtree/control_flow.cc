// Decides on the host while work runs eagerly, and has the device decide while it is recorded.
#include "cgtree/control_flow.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cgtree/flow/body.h"
#include "cgtree/flow/condition_kernels.h"
#include "cgtree/flow/conditional.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

void check_flag(std::string_view what, const Tensor& flag, StreamRef stream, bool may_be_bool) {
  const bool is_of_type = flag.defined() && (flag.dtype() == DType::kInt32 ||
                                             (may_be_bool && flag.dtype() == DType::kBool));
  if (is_of_type && flag.elements() == 1 && flag.device() == stream.device()) return;
  throw InvalidArgument(fmt::format("{} is {}, and must be one element of {} on {}", what,
                                    describe(flag), may_be_bool ? "int32 or bool" : "int32",
                                    to_string(stream.device())));
}

FlagInMemory in_memory(const Tensor& flag) {
  return {flag.data(), flag.dtype() == DType::kBool};
}

std::int32_t read(const Tensor& flag, StreamRef stream) {
  std::int32_t value = 0;
  flag.copy_to_host(&value, flag.bytes(), stream);
  return value;
}

bool is_warming_up() noexcept {
  StepScope* const step = StepScope::current();
  return step != nullptr && step->allocations().kind == StepAllocations::Kind::kWarmUp;
}

// Runs use(what the body has returned), with what is then current outside of the body, before what
// the body has made is gone. A warm-up finds out what the body keeps.
template <typename Use>
void run_once(const Body& body, std::int32_t round, const Use& use) {
  std::optional<BodyMemory> memory;
  if (is_warming_up()) memory.emplace(body, BodyMemory::Of::kRecording, nullptr);
  {
    std::vector<Tensor> returned;
    {
      const BodyScope scope(body, round);
      returned = body.enqueue();
    }
    std::optional<AllocatorScope> outside;
    if (memory) outside.emplace(memory->outside());
    use(returned);
  }
  if (memory) memory->check_nothing_kept();
}

// The results of a choice, which lie outside of its bodies, since one of them runs.
class Results {
 public:
  // Throws InvalidArgument unless the body has returned what the first one did.
  void expect(const Body& body, std::span<const Tensor> returned) {
    for (std::size_t i = 0; i < returned.size(); ++i)
      expect_on_device(body, i, returned[i]);
    if (first_.empty()) {
      first_ = body.name;
      for (const Tensor& one : returned)
        like_.push_back({Shape(one.shape().dims()), one.dtype(), describe(one)});
      return;
    }
    if (returned.size() != like_.size()) {
      throw InvalidArgument(fmt::format("{} returns {} tensors, and {} returns {}", body.name,
                                        returned.size(), first_, like_.size()));
    }
    for (std::size_t i = 0; i < returned.size(); ++i) {
      const Shape shape(returned[i].shape().dims());
      if (shape == like_[i].shape && returned[i].dtype() == like_[i].dtype) continue;
      throw InvalidArgument(
          fmt::format("result {} of {} is {}, and that of {} is {}: all bodies must return the "
                      "same shapes and types",
                      i, body.name, describe(returned[i]), first_, like_[i].text));
    }
  }
  // Allocates them. Requires: expect() was called.
  void make() {
    for (const Like& one : like_)
      made_.push_back(empty(one.shape, one.dtype, current_stream().device()));
  }
  // Copies what a body has returned.
  void write(std::span<const Tensor> returned) const {
    const StreamRef stream = current_stream();
    for (std::size_t i = 0; i < returned.size(); ++i) {
      copy_elements(stream, made_[i], returned[i]);
      note_use(returned[i].storage(), stream);
      note_use(made_[i].storage(), stream);
    }
  }
  std::vector<Tensor> take() { return std::move(made_); }

 private:
  struct Like {
    Shape shape;
    DType dtype;
    std::string text;
  };
  static void expect_on_device(const Body& body, std::size_t i, const Tensor& one) {
    const Device device = current_stream().device();
    if (one.defined() && one.device() == device) return;
    throw InvalidArgument(fmt::format("result {} of {} is {}, and must be on {}", i, body.name,
                                      describe(one), to_string(device)));
  }

  std::string first_;  // the name of the body that has returned them; empty: none yet
  std::vector<Like> like_;
  std::vector<Tensor> made_;
};

// `last`: the number of the body that runs where there is none with the number of `index`, or -1.
std::vector<Tensor> choose_one(std::string_view call, ConditionalKind kind, const Tensor& index,
                               std::span<const Body> bodies, FlowDraws& draws,
                               std::int32_t last = -1) {
  const StreamRef stream = current_stream();
  const FlowMode mode = flow_mode(call, stream);
  draws.reserve();
  Results results;
  const auto expect = [&](const Body& body, std::span<const Tensor> returned) {
    results.expect(body, returned);
  };
  if (mode == FlowMode::kTrial) {
    try_bodies(bodies, expect);
    results.make();
    return results.take();
  }
  if (mode == FlowMode::kRecording) {
    add_conditional(
        call, kind, bodies, expect,
        [&](StreamRef own, ConditionHandle condition) {
          results.make();
          expect_use(index.storage(), own);
          launch_set_condition(own, in_memory(index), last, condition);
          note_use(index.storage(), own);
        },
        [&](StreamRef, ConditionHandle, std::span<const Tensor> returned) {
          results.write(returned);
        });
    return results.take();
  }
  const std::int32_t value = read(index, stream);
  std::size_t number = value == 0 ? 1 : 0;
  if (kind == ConditionalKind::kSwitch) {
    const bool is_outside = last >= 0 && (value < 0 || value > last);
    number = static_cast<std::uint32_t>(is_outside ? last : value);
  }
  if (number < bodies.size()) {
    run_once(bodies[number], /*round=*/0, [&](std::span<const Tensor> returned) {
      results.expect(bodies[number], returned);
      results.make();
      results.write(returned);
    });
  }
  return results.take();
}

void expect_body(std::string_view name, bool is_there) {
  if (!is_there) throw InvalidArgument(fmt::format("{} is missing", name));
}

Body plain(std::string name, const FlowDraws& draws, const std::function<void()>& body) {
  expect_body(name, static_cast<bool>(body));
  return {std::move(name), draws, [&body] {
            body();
            return std::vector<Tensor>();
          }};
}

Body with_results(std::string name, const FlowDraws& draws,
                  const std::function<std::vector<Tensor>()>& body) {
  expect_body(name, static_cast<bool>(body));
  return {std::move(name), draws, body};
}

constexpr std::string_view kPredicate = "the predicate of branch()";
constexpr std::string_view kIndex = "the index of choose()";

}  // namespace

void branch(const Tensor& predicate, const std::function<void()>& then,
            const std::function<void()>& otherwise, const std::vector<Generator>& generators) {
  FlowDraws draws(generators);
  std::vector<Body> bodies{plain("then() of branch()", draws, then)};
  if (otherwise) bodies.push_back(plain("otherwise() of branch()", draws, otherwise));
  check_flag(kPredicate, predicate, current_stream(), /*may_be_bool=*/true);
  (void)choose_one("branch()", ConditionalKind::kIf, predicate, bodies, draws);
}

void choose(const Tensor& index, std::span<const std::function<void()>> given,
            const std::vector<Generator>& generators) {
  if (given.empty()) throw InvalidArgument("choose() without bodies");
  FlowDraws draws(generators);
  std::vector<Body> bodies;
  for (std::size_t i = 0; i < given.size(); ++i)
    bodies.push_back(plain(fmt::format("body {} of choose()", i), draws, given[i]));
  check_flag(kIndex, index, current_stream(), /*may_be_bool=*/false);
  (void)choose_one("choose()", ConditionalKind::kSwitch, index, bodies, draws);
}

std::vector<Tensor> branch_results(const Tensor& predicate,
                                   const std::function<std::vector<Tensor>()>& then,
                                   const std::function<std::vector<Tensor>()>& otherwise,
                                   const std::vector<Generator>& generators) {
  FlowDraws draws(generators);
  const Body bodies[] = {with_results("then() of branch()", draws, then),
                         with_results("otherwise() of branch()", draws, otherwise)};
  check_flag(kPredicate, predicate, current_stream(), /*may_be_bool=*/true);
  return choose_one("branch()", ConditionalKind::kIf, predicate, bodies, draws);
}

std::vector<Tensor> choose_results(const Tensor& index,
                                   std::span<const std::function<std::vector<Tensor>()>> given,
                                   const std::vector<Generator>& generators) {
  if (given.empty()) throw InvalidArgument("choose() without bodies");
  FlowDraws draws(generators);
  std::vector<Body> bodies;
  for (std::size_t i = 0; i < given.size(); ++i)
    bodies.push_back(with_results(fmt::format("body {} of choose()", i), draws, given[i]));
  check_flag(kIndex, index, current_stream(), /*may_be_bool=*/false);
  return choose_one("choose()", ConditionalKind::kSwitch, index, bodies, draws,
                    static_cast<std::int32_t>(given.size()) - 1);
}

Tensor loop(std::int64_t max_rounds, const std::function<Tensor()>& given,
            const std::vector<Generator>& generators) {
  if (!given) throw InvalidArgument("the body of loop() is missing");
  if (max_rounds < 1 || max_rounds > std::numeric_limits<std::int32_t>::max()) {
    throw InvalidArgument(
        fmt::format("loop() of at most {} rounds: give a limit from 1 to 2147483647", max_rounds));
  }
  const auto most = static_cast<std::int32_t>(max_rounds);
  const StreamRef stream = current_stream();
  FlowDraws draws(generators);
  const Body body{"the body of loop()", draws, [&] {
                    Tensor flag = given();
                    check_flag("what the body of loop() returns", flag, current_stream(),
                               /*may_be_bool=*/true);
                    return std::vector<Tensor>{std::move(flag)};
                  }};
  const FlowMode mode = flow_mode("loop()", stream);
  Tensor rounds = empty(Shape(), DType::kInt32, stream.device());
  auto* const place = rounds.data<std::int32_t>();
  draws.reserve(place);
  switch (mode) {
    case FlowMode::kTrial:
      try_bodies(std::span(&body, 1), [](const Body&, std::span<const Tensor>) {});
      return rounds;
    case FlowMode::kRecording:
      add_conditional(
          "loop()", ConditionalKind::kWhile, std::span(&body, 1),
          [](const Body&, std::span<const Tensor>) {},
          [&](StreamRef own, ConditionHandle condition) {
            launch_begin_loop(own, place, condition);
            note_use(rounds.storage(), own);
          },
          [&](StreamRef own, ConditionHandle condition, std::span<const Tensor> flag) {
            launch_end_round(own, in_memory(flag[0]), place, most, condition);
            note_use(flag[0].storage(), own);
            note_use(rounds.storage(), own);
          });
      return rounds;
    case FlowMode::kEager:
      break;
  }
  std::int32_t count = 0;
  for (bool goes_on = true; goes_on && count < most; ++count) {
    run_once(body, count,
             [&](std::span<const Tensor> flag) { goes_on = read(flag[0], stream) != 0; });
  }
  launch_store(stream, place, count);
  note_use(rounds.storage(), stream);
  return rounds;
}

}  // namespace cgtree
