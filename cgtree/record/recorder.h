// Recorder: runs a step function for the first and the second time: warms it up, then captures it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "cgtree/record/open_recording.h"

namespace cgtree {

// A Recorder turns calls into recordings. Each of its functions either succeeds or leaves pools,
// streams and generators as they were.
class Recorder {
 public:
  // Throws InvalidArgument if the options contradict each other.
  Recorder(ContextMemory& memory, const ContextOptions& options);

  struct WarmUp {
    std::vector<Tensor> outputs;
    std::vector<std::uint32_t> output_allocations;  // by number in the step; sorted
  };
  // Runs the step function eagerly inside the pool, and notes which allocations become outputs.
  // `before_settling` is called when all that can fail has been done; if it throws, everything is
  // as before. Throws what the step function and `before_settling` throw.
  WarmUp warm_up(const Call& call, const std::function<void()>& before_settling);

  // Captures the step function, and launches the graph once, so that `outputs` hold values. What
  // the step function throws is a failure: libraries refuse captures by exceptions of their own.
  // `output_allocations`: what warm_up() has noted. Throws OutOfMemory, DeviceError, and what
  // `before_launch` (see CaptureOn) throws.
  CaptureResult record(const Call& call, const std::vector<std::uint32_t>& output_allocations,
                       std::function<void(Recording&)> before_launch);
  // The device has refused to tell a node of the function where an input is: from now on its
  // inputs are copied.
  void never_rebind(const Function& function) { never_rebound_.insert(function.id); }
  // The same, but the graph is neither instantiated nor launched.
  CaptureResult rehearse(const Call& call, const std::vector<std::uint32_t>& output_allocations);

 private:
  std::optional<Probe> probe(const Call& call, const std::vector<std::uint32_t>& output_allocations,
                             CaptureOn on);
  CaptureResult capture(const Call& call, const std::vector<std::uint32_t>& output_allocations,
                        CaptureOn on);
  StreamRef capture_stream() const;

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
