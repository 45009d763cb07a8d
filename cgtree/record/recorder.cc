// Says where calls are captured, and makes probes and rehearsals.
#include "cgtree/record/recorder.h"

#include <cstddef>
#include <utility>

#include "base/error.h"
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

std::vector<Tensor> run_captured(const Call& call, std::span<const Tensor> step_inputs) {
  clear_stack();
  return call_step(call, step_inputs);
}

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

CaptureOn Recorder::capture_on(const Function& function, CaptureMode mode) const {
  if (function.is_callers_work) {
    return {.stream = memory_.stream(), .mode = mode, .on_foreign_pointer = on_foreign_pointer_};
  }
  return {.stream = capture_stream_ ? StreamRef(*capture_stream_) : memory_.stream(),
          .checked = checked_,
          .on_foreign_pointer = on_foreign_pointer_};
}

// A probe that could not be made costs no more than the copies that it was to save.
std::optional<Probe> Recorder::probe(const Call& call,
                                     const std::vector<std::uint32_t>& output_allocations) {
  bool any = false;
  for (std::size_t i = 0; i < call.inputs().size(); ++i)
    any = any || call.rebind(i) != Rebind::kNever;
  if (!any || call.function().is_callers_work) return std::nullopt;
  std::optional<Probe> probe(std::in_place);
  if (is_in_group_) {
    probe->failure = "what addresses are aligned to may differ between the ranks of a group";
    return probe;
  }
  if (never_rebound_.contains(call.function().id)) {
    probe->failure = "the device has refused to change an address in a node of the function";
    return probe;
  }
  CaptureOn on = capture_on(call.function(), CaptureMode::kThreadLocal);
  on.makes_probe = &*probe;
  // Once more if the pools have grown meanwhile, after which allocations are placed elsewhere, and
  // when it is known which allocations the buffers are to replace.
  constexpr int kMostRuns = 3;
  for (int run = 0; run < kMostRuns; ++run) {
    const std::size_t reserved = memory_.reserved_bytes();
    try {
      OpenRecording open(memory_, call, on, output_allocations);
      Run made = run_in(open, call);
      open.finish_probe(std::move(made.outputs), std::move(made.thrown));
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

CaptureResult Recorder::rehearse(const Call& call,
                                 const std::vector<std::uint32_t>& output_allocations) {
  memory_.begin_tracking();
  CaptureOn on = capture_on(call.function(), CaptureMode::kThreadLocal);
  on.on_foreign_pointer = OnForeignPointer::kRecord;
  on.is_rehearsal = true;
  OpenRecording open(memory_, call, on, output_allocations);
  Run made = run_in(open, call);
  return open.finish(std::move(made.outputs), std::move(made.thrown));
}

}  // namespace cgtree
