// Warm-up and capture, each of which either succeeds or leaves no trace.
#include "cgtree/record/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "cgtree/record/axis_lengths.h"
#include "cgtree/record/output_slices.h"
#include "cgtree/record/outputs.h"
#include "cgtree/record/run_step.h"
#include "cgtree/record/treatment.h"

namespace cgtree {
namespace {

// Each storage that the step allocated and returned, once, with the number of the output.
template <typename Visit>
void for_each_new_storage(const ContextMemory& memory, std::span<const Tensor> outputs,
                          Visit&& visit) {
  for (std::uint32_t i = 0; i < outputs.size(); ++i) {
    Storage& storage = *outputs[i].storage();
    if (memory.in_step(storage)) visit(storage, i);
  }
}

std::string what_of(const std::exception_ptr& thrown) {
  if (!thrown) return {};
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

// Catches work launched on the stream of the calls, which a recording would miss, while it lives.
class StrayCapture {
 public:
  explicit StrayCapture(StreamRef stream) {
    try {
      capture_.emplace(stream, CaptureMode::kThreadLocal);
    } catch (const CaptureError&) {  // the legacy stream cannot be captured: 900
      (void)stream.graphs().take_last_error();
    }
  }
  // Ends the watch.
  bool any() {
    Graph graph;
    return capture_ && (!ok(capture_->end(&graph)) || graph.node_count() > 0);
  }

 private:
  std::optional<Capture> capture_;
};

}  // namespace

Recorder::Recorder(ContextMemory& memory, bool checked)
    : memory_(memory),
      checked_(checked),
      capture_stream_(memory.device(), checked ? StreamKind::kBlocking : StreamKind::kNonBlocking) {
}

std::vector<Tensor> Recorder::run_with_lengths(const FunctionState& function, InputList inputs) {
  const AxisLengths lengths(function.axes.get(), memory_, /*records=*/false);
  std::vector<Tensor> outputs = run_step(function, memory_, inputs, StepRun::kWarmUp);
  lengths.check_not_returned(function.name, outputs);
  return outputs;
}

std::vector<Tensor> Recorder::warm_up(FunctionState& function, KeyState& key, InputList inputs) {
  memory_.begin_tracking();
  StepScope scope(memory_, memory_.stream(), StepAllocations::Kind::kWarmUp);
  std::vector<Tensor> outputs = run_with_lengths(function, inputs);

  std::vector<std::uint32_t> retained;
  for_each_new_storage(memory_, outputs, [&](Storage& storage, std::uint32_t) {
    retained.push_back(static_cast<std::uint32_t>(storage.tag.number));
    // Work on a side stream that was not joined may still have to write it.
    if (!scope.allocations().defers_frees()) memory_.move_to_output_region(storage);
  });
  std::sort(retained.begin(), retained.end());
  retained.erase(std::unique(retained.begin(), retained.end()), retained.end());
  memory_.reserve_slots();
  for_each_new_storage(memory_, outputs, [&](Storage& storage, std::uint32_t i) {
    memory_.settle(storage, function.id, i);
  });
  // What the step keeps beyond the call was set up for later calls: a workspace, a table.
  memory_.settle_rest(function.id);
  scope.finish();
  key.retained = std::move(retained);
  key.warmed_up = true;
  return outputs;
}

Code Recorder::run_captured(const FunctionState& function, std::span<const Tensor> inputs,
                            Graph* graph, std::vector<Tensor>& outputs,
                            std::exception_ptr& thrown) {
  Capture capture(capture_stream_, CaptureMode::kThreadLocal);
  clear_capture_failure();
  try {
    outputs = function.step(inputs);
  } catch (...) {
    thrown = std::current_exception();
  }
  return capture.end(graph);
}

std::optional<CaptureFailure> Recorder::capture(const FunctionState& function,
                                                std::span<const Tensor> inputs,
                                                Recording& recording,
                                                std::vector<Tensor>& outputs) {
  const DeferredFrees hold = memory_.defer_frees();
  std::optional<StrayCapture> strays;
  if (checked_) strays.emplace(memory_.stream());
  std::exception_ptr thrown;
  const Code code = run_captured(function, inputs, &recording.graph, outputs, thrown);
  if (!ok(code)) {
    std::string what = what_of(thrown);
    if (what.empty()) what = first_capture_failure();
    if (what.empty()) what = fmt::format("{} ({})", explain(code), name(code));
    return CaptureFailure{code, std::move(what)};
  }
  if (thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const CaptureError& error) {  // refused before it could break anything
      return CaptureFailure{static_cast<Code>(error.code()), error.what()};
    }
  }
  if (strays && strays->any()) {
    return CaptureFailure{Code::kStreamCaptureImplicit,
                          "it launched work on the context's stream: inside a step function, "
                          "launch on current_stream()"};
  }
  return std::nullopt;
}

// Notes what came in and what went out; from here on the caller's tensors stand for their copies.
void Recorder::understand(const FunctionState& function, InputList inputs, PreparedInputs& prepared,
                          Recorded& recorded) {
  std::vector<Tensor>& outputs = recorded.outputs;
  Recording& recording = recorded.recording;
  check_outputs(function.name, outputs);
  check_output_axes(function, outputs,
                    function.axes != nullptr ? function.axes->seen() : AxisSizes{});
  recording.outputs =
      understand_outputs(function.name, memory_, outputs, prepared.seen, prepared.records, inputs);
  learn_slices(function, recording.outputs);
  const std::vector<Tensor> whole = outputs;
  slice_outputs(function, outputs);
  check_buffers(function, outputs, inputs);
  copy_to_buffers(whole, inputs, prepared.tail);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    OutputRecord& record = recording.outputs[i];
    if (inputs.has_buffer(i)) {
      (void)memory_.keep(whole[i].storage());  // what the tail reads, where it is not the step's
      record = record_of_buffer(inputs, i);
    }
    if (record.kind == OutputRecord::Kind::kInput) outputs[i] = input_output(record, inputs);
  }
  prepared.seen.clear();
  recording.apart = pairs_apart(function, prepared.records);
  recording.set_inputs(std::move(prepared.records));
  recording.buffers = inputs.buffers();
}

// The tail first: of a graph without nodes it is all there is, and the root goes in front.
void Recorder::finish_graph(InputList inputs, PreparedInputs& prepared,
                            std::vector<RecordedDraw> draws, Recording& recording) {
  recording.tails = make_gather_nodes(memory_, std::move(prepared.tail));
  for (GatherNode& tail : recording.tails)
    tail.add_as_tail(recording.graph, inputs);
  prepared.root.draws = std::move(draws);
  recording.roots = make_gather_nodes(memory_, std::move(prepared.root));
  for (GatherNode& root : recording.roots)
    root.add_as_root(recording.graph, inputs);
  recording.costs.nodes = recording.graph.node_count();
  recording.exec = GraphExec(memory_.stream().graphs(), recording.graph);
}

std::variant<Recorder::Recorded, CaptureFailure, TooSmall> Recorder::record(
    const FunctionState& function, const KeyState& key, InputList inputs) {
  memory_.begin_tracking();
  StepScope scope(memory_, capture_stream_, StepAllocations::Kind::kRecord, &key.retained);
  Recorded result;
  Recording& recording = result.recording;
  recording.device = memory_.device();
  PreparedInputs prepared = prepare_inputs(function, memory_, inputs);
  AxisLengths lengths(function.axes.get(), memory_, /*records=*/true);
  if (auto failure = capture(function, prepared.seen, recording, result.outputs)) return *failure;
  recording.costs.step_nodes = recording.graph.node_count();
  if (recording.costs.step_nodes < function.options.min_graph_nodes) return TooSmall{};
  lengths.check_not_returned(function.name, result.outputs);
  understand(function, inputs, prepared, result);
  for (const GatherNode::Value& length : lengths.values())
    prepared.root.values.push_back(length);
  recording.lengths = lengths.take();
  finish_graph(inputs, prepared, scope.take_draws(), recording);

  std::size_t owned = 0;
  for_each_new_storage(memory_, result.outputs, [&](Storage&, std::uint32_t i) {
    owned += recording.outputs[i].kind == OutputRecord::Kind::kSlot;
  });
  if (scope.allocations().alive.size() != owned) {
    throw InvalidArgument(fmt::format(
        "'{}' keeps {} of the tensors it allocated while it was recorded: every replay writes "
        "there; return them, or allocate them before",
        function.name, scope.allocations().alive.size() - owned));
  }
  memory_.reserve_slots();
  recording.kept = {std::move(scope.allocations().kept), memory_.stream()};
  recording.footprint = Footprint(std::move(scope.allocations().ranges));
  (void)bind(recording, inputs);
  check(launch(recording, memory_.stream()),
        fmt::format("launch the graph of '{}'", function.name));
  for_each_new_storage(memory_, result.outputs, [&](Storage& storage, std::uint32_t i) {
    recording.outputs[i].slot = &memory_.settle(storage, function.id, i);
  });
  scope.finish();
  return result;
}

}  // namespace cgtree
