// Recorder: where and how the calls of a context are captured, and the captures that are kept for
// what they show: probes and rehearsals.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "cgtree/record/open_recording.h"

namespace cgtree {

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
  // Captures the call as often as it takes to know which words of its graph are addresses of inputs
  // that may be rebound, and returns what that has shown; nothing if no input may be.
  // `output_allocations`: what the warm-up has noted.
  std::optional<Probe> probe(const Call& call,
                             const std::vector<std::uint32_t>& output_allocations);
  // The device has refused to tell a node of the function where an input is: from now on its
  // inputs are copied. Returns false if they have been before.
  bool never_rebind(const Function& function) { return never_rebound_.insert(function.id).second; }

  // Captures the step function as a call would be recorded, but the graph is neither instantiated
  // nor launched. Throws OutOfMemory, DeviceError.
  CaptureResult rehearse(const Call& call, const std::vector<std::uint32_t>& output_allocations);

 private:
  ContextMemory& memory_;
  const bool checked_;
  const OnForeignPointer on_foreign_pointer_;
  const bool is_in_group_;
  std::set<std::uint32_t> never_rebound_;  // functions
  // Not the stream that calls launch on: another thread may be reading an output there, and what it
  // enqueued would become part of the recording. Null if the options want that stream.
  std::optional<Stream> capture_stream_;
};

}  // namespace cgtree
