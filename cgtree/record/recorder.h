// Recorder: runs a step function for the first and the second time: warms it up, then captures it.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "cgtree/record/open_recording.h"

namespace cgtree {

// A Recorder turns calls into recordings. Each of its functions either succeeds or leaves pools,
// streams and generators as they were.
class Recorder {
 public:
  // `checked`: see ContextOptions.
  Recorder(ContextMemory& memory, bool checked);

  struct WarmUp {
    std::vector<Tensor> outputs;
    std::vector<std::uint32_t> output_allocations;  // by number in the step; sorted
  };
  // Runs the step function eagerly inside the pool, and notes which allocations become outputs.
  // Throws what the step function throws.
  WarmUp warm_up(const Call& call);

  // Captures the step function, and launches the graph once, so that `outputs` hold values. What
  // the step function throws is a failure: libraries refuse captures by exceptions of their own.
  // `output_allocations`: what warm_up() has noted. `is_rehearsal`: see CaptureOn. Throws
  // OutOfMemory, DeviceError.
  std::variant<Recorded, CaptureFailure, TooSmall> record(
      const Call& call, const std::vector<std::uint32_t>& output_allocations,
      bool is_rehearsal = false);

 private:
  ContextMemory& memory_;
  const bool checked_;
  // Not the stream that calls launch on: another thread may be reading an output there, and what it
  // enqueued would become part of the recording.
  Stream capture_stream_;
};

}  // namespace cgtree
