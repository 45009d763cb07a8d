// Counts and runs rounds.
#include "extensions/flow/loop.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"
#include "extensions/flow/conditional.h"
#include "extensions/flow/flag.h"
#include "interop/tensor/empty.h"

namespace cgtree {

void CountedRounds::begin(StreamRef stream, ConditionHandle condition) {
  launch_begin_loop(stream, count_.data<std::int32_t>(), condition);
  note_use(count_.storage(), stream);
}

void CountedRounds::end_round(StreamRef stream, ConditionHandle condition,
                              std::span<const Tensor> returned) {
  launch_end_round(stream, flag_of(returned[0]), count_.data<std::int32_t>(), most_, condition);
  note_use(returned[0].storage(), stream);
  note_use(count_.storage(), stream);
}

bool CountedRounds::goes_on(StreamRef stream, std::span<const Tensor> returned) {
  return read_flag(returned[0], stream) != 0 && ++rounds_ < most_;
}

std::int32_t expect_max_rounds(std::int64_t max_rounds) {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  if (max_rounds >= 1 && max_rounds <= kMost) return static_cast<std::int32_t>(max_rounds);
  throw InvalidArgument(
      fmt::format("loop() of at most {} rounds: give a limit from 1 to {}", max_rounds, kMost));
}

Tensor run_counted(FlowDraws& draws, const std::function<void(const Tensor& count)>& run) {
  const StreamRef stream = current_stream();
  const FlowMode mode = flow_mode("loop()", stream);  // throws where no memory can be taken
  Tensor count;
  const auto work = [&] {
    count = empty(Shape(), DType::kInt32, stream.device());
    draws.reserve(count.data<std::int32_t>());
    run(count);
  };
  if (mode == FlowMode::kEager) {
    work();
  } else {
    collect_refusals(work);
  }
  return count;
}

void run_loop(const Body& body, Rounds& rounds) {
  const StreamRef stream = current_stream();
  const auto is_any = [](const Body&, std::span<const Tensor>) {};
  switch (flow_mode("loop()", stream)) {
    case FlowMode::kTrial:
      return try_bodies(std::span(&body, 1), is_any);
    case FlowMode::kRecording:
      return add_conditional(
          "loop()", ConditionalKind::kWhile, std::span(&body, 1), is_any,
          [&](StreamRef own, ConditionHandle condition) { rounds.begin(own, condition); },
          [&](StreamRef own, ConditionHandle condition, std::span<const Tensor> returned) {
            rounds.end_round(own, condition, returned);
          });
    case FlowMode::kEager:
      break;
  }
  rounds.begin(stream, ConditionHandle::kNull);
  bool goes_on = true;
  for (std::int32_t round = 0; goes_on; ++round) {
    run_eagerly(body, round, [&](std::span<const Tensor> returned) {
      rounds.end_round(stream, ConditionHandle::kNull, returned);
      goes_on = rounds.goes_on(stream, returned);
    });
  }
}

}  // namespace cgtree
