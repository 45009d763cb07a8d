// Warms step functions up and captures them, so that either succeeds or leaves no trace.
#include "cgtree/record/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "cgtree/record/outputs.h"
#include "cgtree/record/step.h"

namespace cgtree {
namespace {

// Calls visit(storage, i) for each output i whose storage the step has allocated.
template <typename Visit>
void for_each_new_storage(const ContextMemory& memory, std::span<const Tensor> outputs,
                          Visit&& visit) {
  for (std::uint32_t i = 0; i < outputs.size(); ++i) {
    Storage& storage = *outputs[i].storage();
    if (memory.in_step(storage)) visit(storage, i);
  }
}

std::size_t count_kernels(GraphAPI& api, const Graph& graph) {
  std::vector<NodeHandle> nodes;
  check(api.graph_nodes(graph.handle(), &nodes), "list the nodes of a graph");
  std::size_t count = 0;
  for (const NodeHandle node : nodes) {
    NodeType type = NodeType::kOther;
    check(api.node_type(node, &type), "ask for the type of a node");
    count += type == NodeType::kKernel;
  }
  return count;
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

// Returns why a graph that allocates memory could be launched only once, if that is so: what one
// launch allocates must be freed before the next one, and by the graph itself.
std::optional<CaptureFailure> unfreed_memory(GraphAPI& graphs, const Graph& graph) {
  std::vector<NodeHandle> nodes;
  check(graphs.graph_nodes(graph.handle(), &nodes), "list the nodes of a recording");
  std::size_t allocations = 0;
  std::size_t frees = 0;
  for (const NodeHandle node : nodes) {
    NodeType type = NodeType::kOther;
    check(graphs.node_type(node, &type), "look at a node of a recording");
    allocations += type == NodeType::kAllocation;
    frees += type == NodeType::kFree;
  }
  if (allocations == frees) return std::nullopt;
  return CaptureFailure{
      Code::kStreamCaptureUnsupported,
      fmt::format("its graph has {} allocations and {} frees of stream-ordered memory, and could "
                  "be launched only once: inside a step function allocate with empty() or "
                  "Workspace, or free there what was allocated there",
                  allocations, frees)};
}

// Forgets inputs whose address is checked among what a recording keeps: they are where they were,
// or the recording does not fit.
void forget_inputs(const Call& call, std::vector<StorageRef>& kept) {
  std::erase_if(kept, [&](const StorageRef& storage) {
    for (std::size_t i = 0; i < call.inputs().step_size(); ++i) {
      const Treatment treatment = call.treatment(i);
      const bool is_checked = treatment == Treatment::kManaged || treatment == Treatment::kStatic;
      if (is_checked && call.inputs()[i].storage() == storage) return true;
    }
    return false;
  });
}

// While an UnrecordedWork lives, it captures the stream of the calls: work that is launched there
// in place of current_stream() would run once, and be missing from the recording.
class UnrecordedWork {
 public:
  explicit UnrecordedWork(StreamRef stream) {
    try {
      capture_.emplace(stream, CaptureMode::kThreadLocal);
    } catch (const CaptureError&) {  // the legacy stream cannot be captured: 900
      (void)stream.graphs().take_last_error();
    }
  }
  // Ends the capture, and returns whether it has caught anything.
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

Recorder::WarmUp Recorder::warm_up(const Call& call) {
  memory_.begin_tracking();
  StepScope scope(memory_, memory_.stream(), StepAllocations::Kind::kWarmUp);
  WarmUp result;
  {
    const AxisLengths lengths(call, memory_, /*records=*/false);
    result.outputs = run_step(call, memory_, StepRun::kWarmUp);
    lengths.check_not_returned(result.outputs);
  }
  std::vector<std::uint32_t>& numbers = result.output_allocations;
  for_each_new_storage(memory_, result.outputs, [&](Storage& storage, std::uint32_t) {
    numbers.push_back(static_cast<std::uint32_t>(storage.tag.number));
    // Work on a side stream that was not joined may still have to write it.
    if (!scope.allocations().defers_frees()) memory_.move_to_output_region(storage);
  });
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  memory_.reserve_slots();
  const std::uint32_t function = call.function().id;
  for_each_new_storage(memory_, result.outputs, [&](Storage& storage, std::uint32_t i) {
    memory_.settle(storage, function, i);
  });
  // What the step keeps beyond the call was set up for later calls: a workspace, a table.
  memory_.settle_rest(function);
  scope.finish();
  return result;
}

Code Recorder::run_captured(const Call& call, std::span<const Tensor> inputs, Graph* graph,
                            std::vector<Tensor>& outputs, std::exception_ptr& thrown) {
  Capture capture(capture_stream_, CaptureMode::kThreadLocal);
  clear_capture_failure();
  try {
    outputs = call.function().step(inputs);
    make_row_major(call, outputs);
  } catch (...) {
    thrown = std::current_exception();
  }
  return capture.end(graph);
}

std::optional<CaptureFailure> Recorder::capture(const Call& call, std::span<const Tensor> inputs,
                                                Recording& recording,
                                                std::vector<Tensor>& outputs) {
  const DeferredFrees hold = memory_.defer_frees();
  std::optional<UnrecordedWork> unrecorded;
  if (checked_) unrecorded.emplace(memory_.stream());
  std::exception_ptr thrown;
  const Code code = run_captured(call, inputs, &recording.graph, outputs, thrown);
  if (!ok(code)) {
    std::string what = what_of(thrown);
    if (what.empty()) what = first_capture_failure();
    if (what.empty()) what = fmt::format("{} ({})", explain(code), name(code));
    return CaptureFailure{code, std::move(what), nullptr};
  }
  if (thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const OutOfMemory&) {
      throw;
    } catch (const InvalidArgument&) {  // a wrong use of this library, which the caller must see
      throw;
    } catch (const CaptureError& error) {  // refused before it could break anything
      return CaptureFailure{static_cast<Code>(error.code()), error.what(), nullptr};
    } catch (...) {
      return CaptureFailure{Code::kUnknown, what_of(thrown), thrown};
    }
  }
  if (unrecorded && unrecorded->any()) {
    return CaptureFailure{Code::kStreamCaptureImplicit,
                          "it launched work on the context's stream: inside a step function, "
                          "launch on current_stream()",
                          nullptr};
  }
  return unfreed_memory(memory_.stream().graphs(), recording.graph);
}

// Notes what came in and what went out; from here on the caller's tensors stand for their copies.
void Recorder::understand(const Call& call, PreparedInputs& prepared, Recorded& recorded) {
  const InputList& inputs = call.inputs();
  std::vector<Tensor>& outputs = recorded.outputs;
  Recording& recording = recorded.recording;
  check_outputs(call.function().name, outputs);
  check_output_axes(call.function(), outputs, call.axes().padded);
  recording.outputs = understand_outputs(call, memory_, outputs, prepared.step_inputs);
  const std::vector<Tensor> whole = outputs;
  slice_outputs(call, outputs);
  check_buffers(call, outputs);
  copy_to_buffers(whole, inputs, prepared.tail);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    OutputRecord& record = recording.outputs[i];
    if (inputs.has_buffer(i)) {
      (void)memory_.keep(
          whole[i].storage());  // the tail node reads it, even if it is not the step's
      record = record_of_buffer(inputs, i);
    }
    if (record.kind == OutputRecord::Kind::kInput) outputs[i] = input_output(record, inputs);
  }
  prepared.step_inputs.clear();
  recording.inputs = std::move(prepared.records);
  std::vector<std::uintptr_t> fixed;
  for (const InputRecord& input : recording.inputs)
    fixed.push_back(may_move(input.treatment) ? 0 : input.address);
  recording.apart = ApartPairs(call.pairs_apart(), fixed);
  recording.buffers = inputs.buffers();
}

// The tail comes first: in a graph without nodes it is all there is, and the root goes in front.
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
  recording.costs.kernels = count_kernels(memory_.stream().graphs(), recording.graph);
  recording.exec = GraphExec(memory_.stream().graphs(), recording.graph);
}

std::variant<Recorder::Recorded, CaptureFailure, TooSmall> Recorder::record(
    const Call& call, const std::vector<std::uint32_t>& output_allocations) {
  const Function& function = call.function();
  const InputList& inputs = call.inputs();
  memory_.begin_tracking();
  StepScope scope(memory_, capture_stream_, StepAllocations::Kind::kRecord, &output_allocations);
  Recorded result;
  Recording& recording = result.recording;
  recording.device = memory_.device();
  // Which of them the step function uses cannot be seen: addresses are kernel arguments.
  scope.allocations().kept = memory_.workspaces();
  PreparedInputs prepared = prepare_inputs(call, memory_);
  AxisLengths lengths(call, memory_, /*records=*/true);
  if (auto failure = capture(call, prepared.step_inputs, recording, result.outputs)) {
    return *failure;
  }
  recording.costs.step_nodes = recording.graph.node_count();
  if (recording.costs.step_nodes < function.options.min_graph_nodes) return TooSmall{};
  lengths.check_not_returned(result.outputs);
  understand(call, prepared, result);
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
  forget_inputs(call, scope.allocations().kept);
  memory_.note_kept(scope.allocations().kept);
  recording.kept = {std::move(scope.allocations().kept), memory_.streams()};
  recording.footprint = Footprint(std::move(scope.allocations().ranges));
  (void)bind(recording, inputs);
  memory_.streams().wait_for_due();
  check(launch(recording, memory_.stream()),
        fmt::format("launch the graph of '{}'", function.name));
  for_each_new_storage(memory_, result.outputs, [&](Storage& storage, std::uint32_t i) {
    recording.outputs[i].slot = &memory_.settle(storage, function.id, i);
  });
  scope.finish();
  return result;
}

}  // namespace cgtree
