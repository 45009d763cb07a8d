// Recorder: runs a step function for the first and the second time: warm up, then capture.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cgtree/tree/node.h"
#include "cgtree/record/prepared_inputs.h"
#include "cgtree/record/step_scope.h"

namespace cgtree {

// The capture of a step function failed; everything is as before.
struct CaptureFailure {
  Code code;         // the device's number
  std::string what;  // which call failed, where it is known
};

// The graph has fewer nodes than CompileOptions::min_graph_nodes; everything is as before.
struct TooSmall {};

class Recorder {
 public:
  // `checked`: see ContextOptions.
  Recorder(ContextMemory& memory, bool checked);

  // Runs the step function eagerly inside the pool, and notes which allocations become outputs.
  // Throws what the step function throws; the pools are then as before.
  std::vector<Tensor> warm_up(FunctionState& function, KeyState& key, InputList inputs);

  struct Recorded {
    Recording recording;
    std::vector<Tensor> outputs;
  };
  // Captures the step function and launches the graph once, so that `outputs` hold values.
  // Throws what the step function throws when the capture itself is sound, and OutOfMemory,
  // DeviceError; the pools and the stream are then as before.
  std::variant<Recorded, CaptureFailure, TooSmall> record(const FunctionState& function,
                                                          const KeyState& key, InputList inputs);

 private:
  std::vector<Tensor> run_with_lengths(const FunctionState& function, InputList inputs);
  Code run_captured(const FunctionState& function, std::span<const Tensor> inputs, Graph* graph,
                    std::vector<Tensor>& outputs, std::exception_ptr& thrown);
  std::optional<CaptureFailure> capture(const FunctionState& function,
                                        std::span<const Tensor> inputs, Recording& recording,
                                        std::vector<Tensor>& outputs);
  void understand(const FunctionState& function, InputList inputs, PreparedInputs& prepared,
                  Recorded& recorded);
  void finish_graph(InputList inputs, PreparedInputs& prepared, std::vector<RecordedDraw> draws,
                    Recording& recording);

  ContextMemory& memory_;
  const bool checked_;
  // Not the stream that calls launch on: another thread may be reading an output there, and what
  // it enqueued would become part of the recording.
  Stream capture_stream_;
};

}  // namespace cgtree
