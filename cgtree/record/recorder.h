// Recorder: runs a step function for the first and the second time: warms it up, then captures it.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cgtree/record/prepare.h"
#include "cgtree/record/recording.h"
#include "cgtree/record/step.h"

namespace cgtree {

// The capture of a step function failed; everything is as before.
struct CaptureFailure {
  Code code;         // the device's number; kUnknown if `thrown`
  std::string what;  // which call failed, if that is known
  // What the step function has thrown while the device found nothing wrong, or null.
  std::exception_ptr thrown = nullptr;
};

// The graph has fewer nodes than CompileOptions::min_graph_nodes; everything is as before.
struct TooSmall {};

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

  struct Recorded {
    Recording recording;
    std::vector<Tensor> outputs;
  };
  // Captures the step function, and launches the graph once, so that `outputs` hold values. What
  // the step function throws is a failure: libraries refuse captures by exceptions of their own.
  // `output_allocations`: what warm_up() has noted. Throws OutOfMemory, DeviceError.
  std::variant<Recorded, CaptureFailure, TooSmall> record(
      const Call& call, const std::vector<std::uint32_t>& output_allocations);

 private:
  Code run_captured(const Call& call, std::span<const Tensor> inputs, Graph* graph,
                    std::vector<Tensor>& outputs, std::exception_ptr& thrown);
  std::optional<CaptureFailure> capture(const Call& call, std::span<const Tensor> inputs,
                                        Recording& recording, std::vector<Tensor>& outputs);
  void understand(const Call& call, PreparedInputs& prepared, Recorded& recorded);
  void finish_graph(InputList inputs, PreparedInputs& prepared, std::vector<RecordedDraw> draws,
                    Recording& recording);

  ContextMemory& memory_;
  const bool checked_;
  // Not the stream that calls launch on: another thread may be reading an output there, and what it
  // enqueued would become part of the recording.
  Stream capture_stream_;
};

}  // namespace cgtree
