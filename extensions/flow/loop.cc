// Counts and runs rounds.
#include "extensions/flow/loop.h"

#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "interop/tensor/empty.h"

namespace cgtree {

std::int32_t expect_max_rounds(std::int64_t max_rounds) {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  if (max_rounds >= 1 && max_rounds <= kMost) return static_cast<std::int32_t>(max_rounds);
  throw InvalidArgument(
      str_format("loop() of at most {} rounds: give a limit from 1 to {}", max_rounds, kMost));
}

Tensor run_counted(FlowDraws& draws, const std::function<void(const Tensor& count)>& run) {
  const StreamRef stream = current_stream();
  const bool captures = is_captured("loop()", stream);  // throws where no memory can be allocated
  Tensor count;
  const auto work = [&] {
    count = empty(Shape(), DType::kInt32, stream.device());
    draws.reserve(count.data<std::int32_t>());
    run(count);
  };
  if (captures) {
    collect_refusals(work);
  } else {
    work();
  }
  return count;
}

void run_loop(const Body& body, const Rounds& rounds) {
  const StreamRef stream = current_stream();
  if (is_captured("loop()", stream)) {
    return add_conditional(
        "loop()", ConditionalKind::kWhile, std::span(&body, 1),
        /*tried=*/[](const Body&, std::span<const Tensor>) {}, rounds.begin, rounds.end_round);
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
