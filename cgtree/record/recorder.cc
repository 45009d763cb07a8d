// Warms step functions up and captures them, so that either succeeds or leaves no trace.
#include "cgtree/record/recorder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cgtree/record/breaks.h"
#include "cgtree/record/outputs.h"
#include "cgtree/record/step.h"

namespace cgtree {
namespace {

// A Run is what a step function did inside of a capture.
struct Run {
  std::vector<Tensor> outputs;
  std::exception_ptr thrown;
};

// A struct that is passed by value has between its members what the stack had. If that is alike in
// two captures, so are the bytes of kernels' parameters.
[[gnu::noinline]] void clear_stack() {
  constexpr std::size_t kBytes = 16384;
  volatile std::byte bytes[kBytes];
  for (volatile std::byte& byte : bytes)
    byte = std::byte{0};
}

Run run_step_of(const Call& call, ContextMemory& memory, const OpenRecording& open) {
  Run run;
  const KeyScope key(call.inputs().key());
  clear_stack();
  try {
    run.outputs = call_step(call, open.inputs());
    copy_padded_inputs(call, memory, run.outputs, open.inputs());
    make_row_major(call, run.outputs);
  } catch (...) {
    run.thrown = std::current_exception();
  }
  return run;
}

}  // namespace

Recorder::Recorder(ContextMemory& memory, const ContextOptions& options)
    : memory_(memory),
      checked_(options.checked),
      on_foreign_pointer_(options.on_foreign_pointer),
      is_in_group_(options.group != nullptr) {
  if (options.captures_on_stream_of_calls) {
    if (!checked_) return;
    throw InvalidArgument(
        "a context that is checked captures on a stream of its own, and "
        "captures_on_stream_of_calls asks for that of the calls: set one of the two");
  }
  capture_stream_.emplace(memory.device(),
                          checked_ ? StreamKind::kBlocking : StreamKind::kNonBlocking);
}

Recorder::WarmUp Recorder::warm_up(const Call& call, const std::function<void()>& before_settling) {
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
  memory_.reserve_slots(result.outputs);
  before_settling();
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

// A probe that could not be made costs no more than the copies that it was to save.
std::optional<Probe> Recorder::probe(const Call& call,
                                     const std::vector<std::uint32_t>& output_allocations,
                                     CaptureOn on) {
  bool any = false;
  for (std::size_t i = 0; i < call.inputs().size(); ++i)
    any = any || call.rebind(i) != Rebind::kNever;
  if (!any || on.is_rehearsal) return std::nullopt;
  std::optional<Probe> probe(std::in_place);
  if (is_in_group_) {
    probe->failure = "what addresses are aligned to may differ between the ranks of a group";
    return probe;
  }
  if (never_rebound_.contains(call.function().id)) {
    probe->failure = "the device has refused to change an address in a node of the function";
    return probe;
  }
  on.makes_probe = &*probe;
  // Once more if the pools have grown meanwhile, after which allocations are placed elsewhere, and
  // when it is known which allocations the buffers are to replace.
  constexpr int kMostRuns = 3;
  for (int run = 0; run < kMostRuns; ++run) {
    const std::size_t reserved = memory_.reserved_bytes();
    try {
      OpenRecording open(memory_, call, on, output_allocations);
      const Run made = run_step_of(call, memory_, open);
      open.finish_probe(made.outputs, made.thrown);
    } catch (const std::exception& error) {
      (void)memory_.stream().graphs().take_last_error();
      probe->failure = error.what();
    }
    const bool has_new_buffers = run == 0 && !probe->buffers.empty();
    if (!probe->failure.empty() || (memory_.reserved_bytes() == reserved && !has_new_buffers)) {
      break;
    }
  }
  return probe;
}

CaptureResult Recorder::capture(const Call& call,
                                const std::vector<std::uint32_t>& output_allocations,
                                CaptureOn on) {
  memory_.begin_tracking();
  const std::optional<Probe> shown = probe(call, output_allocations, on);
  on.probe = shown ? &*shown : nullptr;
  {
    OpenRecording open(memory_, call, on, output_allocations);
    Run made = run_step_of(call, memory_, open);
    try {
      return open.finish(std::move(made.outputs), made.thrown);
    } catch (const DeviceError&) {
      if (!open.was_patch_refused() || never_rebound_.contains(call.function().id)) throw;
      (void)memory_.stream().graphs().take_last_error();
      never_rebind(call.function());
    }
  }
  return capture(call, output_allocations, on);  // with copies
}

}  // namespace cgtree
