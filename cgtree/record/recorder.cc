// Chooses the stream of captures, and makes captures that are not kept.
#include "cgtree/record/recorder.h"

#include <string.h>

#include <utility>

#include "base/error.h"
#include "cgtree/record/step.h"
#include "interop/device/graph_api.h"

namespace cgtree {
namespace {

// A Run is the result of a step function inside a capture.
struct Run {
  std::vector<Tensor> outputs;
  std::exception_ptr thrown;
};

Run run_in(const OpenRecording& open, const Call& call) {
  Run run;
  try {
    run.outputs = run_captured(call, open.inputs());
  } catch (...) {
    run.thrown = std::current_exception();
  }
  return run;
}

}  // namespace

void clear_stack() {
  char bytes[16384];
  explicit_bzero(bytes, sizeof(bytes));
}

std::vector<Tensor> run_captured(const Call& call, std::span<const Tensor> step_inputs) {
  clear_stack();
  return call_step(call, step_inputs);
}

Recorder::Recorder(ContextMemory& memory, const ContextOptions& options)
    : memory_(memory), checked_(options.checked) {
  const bool is_partition = memory.streams().home_partition() != 0;
  if (is_partition && checked_) {
    throw InvalidArgument(
        "a context that is checked captures on a stream of its own, which is not of the partition "
        "(the green context) that ContextOptions::stream is of: leave `checked` false");
  }
  if (is_partition) return;
  capture_stream_.emplace(memory.device(),
                          checked_ ? StreamKind::kBlocking : StreamKind::kNonBlocking);
}

CaptureOn Recorder::capture_on(const Function& function, CaptureMode mode) const {
  if (function.is_callers_work) {
    return {.stream = memory_.stream(), .mode = mode};
  }
  return {.stream = capture_stream_ ? StreamRef(*capture_stream_) : memory_.stream(),
          .checked = checked_};
}

std::string Recorder::try_capture(const Call& call,
                                  const std::vector<std::uint32_t>& output_allocations,
                                  StandIns stand_ins, const OpenRecording::Look& look) {
  CaptureOn on = capture_on(call.function(), CaptureMode::kThreadLocal);
  on.stand_ins = &stand_ins;
  try {
    OpenRecording open(memory_, call, on, output_allocations);
    Run made = run_in(open, call);
    return open.finish_trial(std::move(made.outputs), std::move(made.thrown), look);
  } catch (const std::exception& error) {
    (void)memory_.stream().graphs().take_last_error();
    return error.what();
  }
}

CaptureResult Recorder::rehearse(const Call& call,
                                 const std::vector<std::uint32_t>& output_allocations) {
  memory_.begin_tracking();
  CaptureOn on = capture_on(call.function(), CaptureMode::kThreadLocal);
  on.is_rehearsal = true;
  OpenRecording open(memory_, call, on, output_allocations);
  Run made = run_in(open, call);
  return open.finish(std::move(made.outputs), std::move(made.thrown));
}

}  // namespace cgtree
