// Recorder: where and how the calls of a context are captured, and the captures that are not kept
// but for what they show.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cgtree/record/open_recording.h"

namespace cgtree {

// Clears what is below on the stack. A struct that is passed by value has between its members what
// the stack had: if that is alike in two captures, so are the bytes of kernels' parameters.
[[gnu::noinline]] void clear_stack();

// As call_step(), but alike calls leave alike bytes in gaps of the structs that they pass by value,
// so that what two captures have can be compared.
std::vector<Tensor> run_captured(const Call& call, std::span<const Tensor> step_inputs);

class Recorder {
 public:
  // Throws InvalidArgument if the options contradict each other. `memory`: borrowed.
  Recorder(ContextMemory& memory, const ContextOptions& options);

  // Returns where the call is captured: a step function on a stream of the recorder's own, the work
  // of an engine on that of the calls, in its `mode`.
  CaptureOn capture_on(const Function& function, CaptureMode mode) const;
  // Captures the step function as a call would be recorded, with stand-ins, keeps nothing, and lets
  // look() see the graphs. `output_allocations`: what the warm-up has noted. Returns why there is
  // nothing to see, or "".
  std::string try_capture(const Call& call, const std::vector<std::uint32_t>& output_allocations,
                          StandIns stand_ins, const OpenRecording::Look& look);

  // Captures the step function as a call would be recorded, but the graph is neither instantiated
  // nor launched. Throws OutOfMemory, DeviceError.
  CaptureResult rehearse(const Call& call, const std::vector<std::uint32_t>& output_allocations);

 private:
  ContextMemory& memory_;
  const bool checked_;
  // Not the stream that calls launch on: another thread may be reading an output there, and what it
  // enqueued would become part of the recording. Null if the options want that stream.
  std::optional<Stream> capture_stream_;
};

}  // namespace cgtree
