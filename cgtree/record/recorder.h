// Recorder: chooses the stream and options of captures, and makes captures that are not kept.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cgtree/record/open_recording.h"

namespace cgtree {

// Clears the unused part of the stack. Padding in a struct passed by value has old bytes of the
// stack: if these are the same in two captures, so are the bytes of kernel parameters.
[[gnu::noinline]] void clear_stack();

// As call_step(), but equal calls leave equal bytes in the padding of structs passed by value, so
// that two captures can be compared.
std::vector<Tensor> run_captured(const Call& call, std::span<const Tensor> step_inputs);

class Recorder {
 public:
  // Throws InvalidArgument if the options contradict each other. `memory`: borrowed.
  Recorder(ContextMemory& memory, const ContextOptions& options);

  // Returns the stream and options for a capture: a step function on a stream of the recorder, the
  // work of an engine on the stream of the calls, in its `mode`.
  CaptureOn capture_on(const Function& function, CaptureMode mode) const;
  // Captures the step function as for a recording, with stand-ins, shows look() the graphs, and
  // keeps nothing. `output_allocations`: noted by the warm-up. Returns why the capture failed, or
  // "".
  std::string try_capture(const Call& call, const std::vector<std::uint32_t>& output_allocations,
                          StandIns stand_ins, const OpenRecording::Look& look);

  // Captures the step function as for a recording, without instantiating or launching the graph.
  // Throws OutOfMemory, DeviceError.
  CaptureResult rehearse(const Call& call, const std::vector<std::uint32_t>& output_allocations);

 private:
  ContextMemory& memory_;
  const bool checked_;
  // Not the stream of the calls: another thread may be reading an output there, and its work would
  // become part of the recording. Null if the options demand that stream.
  std::optional<Stream> capture_stream_;
};

}  // namespace cgtree
