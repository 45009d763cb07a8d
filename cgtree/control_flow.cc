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

// Runs use(what the body has returned) before what the body has made is gone. A warm-up finds out
// what the body keeps.
template <typename Use>
void run_once(const Body& body, const Use& use) {
  std::optional<BodyMemory> memory;
  if (is_warming_up()) memory.emplace(body, BodyMemory::Of::kRecording);
  {
    const BodyScope scope(body);
    use(body.enqueue());
  }
  if (memory) memory->check_nothing_kept();
}

void run_once(const Body& body) {
  run_once(body, [](const Tensor&) {});
}

// Each body once, for what it may not do.
void run_all(std::span<const Body> bodies) {
  for (const Body& body : bodies)
    run_once(body);
}

void choose_one(std::string_view call, ConditionalKind kind, const Tensor& index,
                std::span<const Body> bodies) {
  const StreamRef stream = current_stream();
  switch (flow_mode(call, stream)) {
    case FlowMode::kTrial:
      return run_all(bodies);
    case FlowMode::kRecording:
      add_conditional(
          call, kind, bodies,
          [&](StreamRef own, ConditionHandle condition) {
            expect_use(index.storage(), own);
            launch_set_condition(own, in_memory(index), condition);
            note_use(index.storage(), own);
          },
          [](StreamRef, ConditionHandle, const Tensor&) {});
      return;
    case FlowMode::kEager:
      break;
  }
  const auto value = static_cast<std::uint32_t>(read(index, stream));
  const std::size_t number =
      kind == ConditionalKind::kSwitch ? value : static_cast<std::size_t>(value == 0);
  if (number < bodies.size()) run_once(bodies[number]);
}

Body plain(std::string name, const std::function<void()>& body) {
  if (!body) throw InvalidArgument(fmt::format("{} is missing", name));
  return {std::move(name), [&body] {
            body();
            return Tensor();
          }};
}

}  // namespace

void branch(const Tensor& predicate, const std::function<void()>& then,
            const std::function<void()>& otherwise) {
  std::vector<Body> bodies{plain("then() of branch()", then)};
  if (otherwise) bodies.push_back(plain("otherwise() of branch()", otherwise));
  check_flag("the predicate of branch()", predicate, current_stream(), /*may_be_bool=*/true);
  choose_one("branch()", ConditionalKind::kIf, predicate, bodies);
}

void choose(const Tensor& index, std::span<const std::function<void()>> given) {
  if (given.empty()) throw InvalidArgument("choose() without bodies");
  std::vector<Body> bodies;
  for (std::size_t i = 0; i < given.size(); ++i)
    bodies.push_back(plain(fmt::format("body {} of choose()", i), given[i]));
  check_flag("the index of choose()", index, current_stream(), /*may_be_bool=*/false);
  choose_one("choose()", ConditionalKind::kSwitch, index, bodies);
}

Tensor loop(std::int64_t max_rounds, const std::function<Tensor()>& given) {
  if (!given) throw InvalidArgument("the body of loop() is missing");
  if (max_rounds < 1 || max_rounds > std::numeric_limits<std::int32_t>::max()) {
    throw InvalidArgument(
        fmt::format("loop() of at most {} rounds: give a limit from 1 to 2147483647", max_rounds));
  }
  const auto most = static_cast<std::int32_t>(max_rounds);
  const StreamRef stream = current_stream();
  const Body body{"the body of loop()", [&] {
                    Tensor flag = given();
                    check_flag("what the body of loop() returns", flag, current_stream(),
                               /*may_be_bool=*/true);
                    return flag;
                  }};
  const FlowMode mode = flow_mode("loop()", stream);
  Tensor rounds = empty(Shape(), DType::kInt32, stream.device());
  auto* const place = rounds.data<std::int32_t>();
  switch (mode) {
    case FlowMode::kTrial:
      run_once(body);
      return rounds;
    case FlowMode::kRecording:
      add_conditional(
          "loop()", ConditionalKind::kWhile, std::span(&body, 1),
          [&](StreamRef own, ConditionHandle condition) {
            launch_begin_loop(own, place, condition);
            note_use(rounds.storage(), own);
          },
          [&](StreamRef own, ConditionHandle condition, const Tensor& flag) {
            launch_end_round(own, in_memory(flag), place, most, condition);
            note_use(flag.storage(), own);
            note_use(rounds.storage(), own);
          });
      return rounds;
    case FlowMode::kEager:
      break;
  }
  std::int32_t count = 0;
  for (bool goes_on = true; goes_on && count < most; ++count)
    run_once(body, [&](const Tensor& flag) { goes_on = read(flag, stream) != 0; });
  launch_store(stream, place, count);
  note_use(rounds.storage(), stream);
  return rounds;
}

}  // namespace cgtree
