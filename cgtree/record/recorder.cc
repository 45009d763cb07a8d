// Warms step functions up and captures them, so that either succeeds or leaves no trace.
#include "cgtree/record/recorder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cgtree/record/breaks.h"
#include "cgtree/record/outputs.h"
#include "cgtree/record/step.h"

namespace cgtree {

Recorder::Recorder(ContextMemory& memory, const ContextOptions& options)
    : memory_(memory), checked_(options.checked), on_foreign_pointer_(options.on_foreign_pointer) {
  if (options.captures_on_stream_of_calls) {
    if (!checked_) return;
    throw InvalidArgument(
        "a context that is checked captures on a stream of its own, and "
        "captures_on_stream_of_calls asks for that of the calls: set one of the two");
  }
  capture_stream_.emplace(memory.device(),
                          checked_ ? StreamKind::kBlocking : StreamKind::kNonBlocking);
}

Recorder::WarmUp Recorder::warm_up(const Call& call) {
  memory_.begin_tracking();
  StepScope scope(memory_, memory_.stream(), StepAllocations::Kind::kWarmUp);
  WarmUp result;
  {
    const AxisLengths lengths(call, memory_, /*records=*/false);
    const BreaksAtOnce breaks(call, scope.allocations());
    result.outputs = run_step(call, memory_, StepRun::kWarmUp);
    lengths.check_not_returned(result.outputs);
  }
  std::vector<std::uint32_t>& numbers = result.output_allocations;
  for_each_new_storage(memory_, result.outputs, [&](Storage& storage, std::uint32_t) {
    numbers.push_back(static_cast<std::uint32_t>(storage.tag.number));
    // Work on a side stream that was not joined may still have to write it.
    if (!scope.allocations().defers_frees()) memory_.move_to_output_region(storage);
  });
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  memory_.reserve_slots();
  const std::uint32_t function = call.function().id;
  for_each_new_storage(memory_, result.outputs, [&](Storage& storage, std::uint32_t i) {
    memory_.settle(storage, function, i);
  });
  // What the step keeps beyond the call was set up for later calls: a workspace, a table.
  memory_.settle_rest(function);
  scope.finish();
  return result;
}

StreamRef Recorder::capture_stream() const {
  return capture_stream_ ? StreamRef(*capture_stream_) : memory_.stream();
}

CaptureResult Recorder::record(const Call& call,
                               const std::vector<std::uint32_t>& output_allocations,
                               std::function<void(Recording&)> before_launch) {
  return capture(call, output_allocations,
                 {.stream = capture_stream(),
                  .checked = checked_,
                  .on_foreign_pointer = on_foreign_pointer_,
                  .before_launch = std::move(before_launch)});
}

CaptureResult Recorder::rehearse(const Call& call,
                                 const std::vector<std::uint32_t>& output_allocations) {
  return capture(call, output_allocations,
                 {.stream = capture_stream(), .checked = checked_, .is_rehearsal = true});
}

CaptureResult Recorder::capture(const Call& call,
                                const std::vector<std::uint32_t>& output_allocations,
                                CaptureOn on) {
  memory_.begin_tracking();
  OpenRecording open(memory_, call, on, output_allocations);
  std::vector<Tensor> outputs;
  std::exception_ptr thrown;
  const KeyScope key(call.inputs().key());
  try {
    outputs = call.function().step(open.inputs());
    make_row_major(call, outputs);
  } catch (...) {
    thrown = std::current_exception();
  }
  return open.finish(std::move(outputs), thrown);
}

}  // namespace cgtree
