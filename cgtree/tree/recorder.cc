// Warm-up and capture, each of which either succeeds or leaves no trace.
#include "cgtree/tree/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "cgtree/tree/output_slices.h"
#include "cgtree/tree/outputs.h"
#include "cgtree/tree/padded_inputs.h"

namespace cgtree {
namespace {

// Each storage that the step allocated and returned, once, with the number of the output.
template <typename Visit>
void for_each_new_storage(const LaneMemory& memory, std::span<const Tensor> outputs,
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

Recorder::Recorder(LaneMemory& memory, bool checked)
    : memory_(memory),
      checked_(checked),
      capture_stream_(memory.device(), checked ? StreamKind::kBlocking : StreamKind::kNonBlocking) {
}

std::vector<Tensor> Recorder::warm_up(FunctionState& function, KeyState& key, InputList inputs) {
  memory_.begin_tracking();
  StepScope scope(memory_, memory_.stream(), StepAllocations::Kind::kWarmUp);
  std::vector<Tensor> seen = pad_for_warm_up(function, memory_, inputs);
  std::vector<Tensor> outputs = function.step(seen);
  check_outputs(function.name, outputs);
  check_output_axes(function, outputs, key.axis_sizes);
  copy_back_mutated(function, memory_, inputs, seen);
  slice_outputs(function, outputs);
  seen.clear();

  std::vector<std::uint32_t> retained;
  for_each_new_storage(memory_, outputs, [&](Storage& storage, std::uint32_t) {
    retained.push_back(static_cast<std::uint32_t>(storage.tag.number));
    memory_.move_to_retained(storage);
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

// The inputs as the step function will see them.
struct Recorder::Inputs {
  std::vector<InputRecord> records;
  std::vector<Tensor> seen;
  std::vector<GatherNode::Copy> copies;
};

Recorder::Inputs Recorder::prepare(const FunctionState& function, InputList inputs) {
  Inputs prepared;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    const Shape& shape = inputs.shape(i);
    InputRecord record{shape, input.dtype(), Treatment::kCopied, input.address()};
    const std::size_t extent = static_cast<std::size_t>(shape.extent()) * size_of(input.dtype());
    if (memory_.manages(*input.storage()) && inputs.in_place(i)) {
      record.treatment = Treatment::kManaged;
    } else if (function.input_options(i).is_static) {
      record.treatment = Treatment::kStatic;
    }
    if (record.treatment == Treatment::kCopied && extent > 0) {
      Tensor copy(memory_.allocate_input_copy(extent), 0, shape, input.dtype());
      record.address = copy.address();
      prepared.copies.push_back(
          {static_cast<std::uint32_t>(i),
           inputs.is_padded(i)
               ? padded_input_row(function, inputs, i, GatherDirection::kIn, record.address)
               : strided_row(GatherDirection::kIn, record.address, shape.dims(), shape.strides(),
                             shape.strides(), size_of(input.dtype()))});
      prepared.seen.push_back(std::move(copy));
    } else {
      prepared.seen.push_back(seen_as_it_lies(inputs, i));
    }
    prepared.records.push_back(std::move(record));
  }
  return prepared;
}

Code Recorder::run_captured(const FunctionState& function, Inputs& inputs, Graph* graph,
                            std::vector<Tensor>& outputs, std::exception_ptr& thrown) {
  Capture capture(capture_stream_, CaptureMode::kThreadLocal);
  clear_capture_failure();
  try {
    outputs = function.step(inputs.seen);
  } catch (...) {
    thrown = std::current_exception();
  }
  return capture.end(graph);
}

std::optional<CaptureFailure> Recorder::capture(const FunctionState& function, Inputs& inputs,
                                                Recording& recording,
                                                std::vector<Tensor>& outputs) {
  const FreeHold hold = memory_.hold_frees();
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

std::variant<Recorder::Recorded, CaptureFailure, TooSmall> Recorder::record(
    const FunctionState& function, const KeyState& key, InputList inputs) {
  memory_.begin_tracking();
  StepScope scope(memory_, capture_stream_, StepAllocations::Kind::kRecord, &key.retained);
  Recorded result;
  Recording& recording = result.recording;
  recording.device = memory_.device();
  Inputs prepared = prepare(function, inputs);
  if (auto failure = capture(function, prepared, recording, result.outputs)) return *failure;
  if (recording.graph.node_count() < function.options.min_graph_nodes) return TooSmall{};

  check_outputs(function.name, result.outputs);
  check_output_axes(function, result.outputs, key.axis_sizes);
  recording.outputs =
      understand_outputs(function.name, memory_, result.outputs, prepared.seen, prepared.records);
  learn_slices(function, recording.outputs);
  slice_outputs(function, result.outputs);
  prepared.seen.clear();
  recording.set_inputs(std::move(prepared.records));
  recording.roots = make_gather_nodes(memory_, prepared.copies, scope.take_draws());
  for (GatherNode& root : recording.roots)
    root.add_as_root(recording.graph, inputs);
  recording.costs.nodes = recording.graph.node_count();
  recording.exec = GraphExec(memory_.stream().graphs(), recording.graph);

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
