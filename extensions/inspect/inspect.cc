// Runs the nodes of a recording one by one.
#include "extensions/inspect/inspect.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/record/outputs.h"
#include "cgtree/tree/ordering.h"
#include "extensions/inspect/found_recording.h"
#include "extensions/inspect/node_runs.h"
#include "extensions/inspect/recording_facts.h"
#include "extensions/rebind/node_rebinding.h"
#include "interop/device/code.h"

namespace cgtree {
namespace {

// An ExchangedExec gives a recording a second executable graph while it lives, in which nodes may
// be left out. The next bind() sets all addresses in either graph.
class ExchangedExec {
 public:
  // Borrows the recording.
  ExchangedExec(Recording& recording, GraphExec exec)
      : recording_(recording), other_(std::move(exec)) {
    exchange();
  }
  ~ExchangedExec() { exchange(); }
  ExchangedExec(const ExchangedExec&) = delete;
  ExchangedExec& operator=(const ExchangedExec&) = delete;

 private:
  void exchange() noexcept {
    std::swap(recording_.exec, other_);
    for (std::vector<GatherNode>* const nodes : {&recording_.roots, &recording_.tails}) {
      for (GatherNode& node : *nodes) {
        node.forget_patch();
        auto* const rebinding = dynamic_cast<NodeRebinding*>(node.rebinding());
        if (rebinding != nullptr) rebinding->forget_patches();
      }
    }
  }

  Recording& recording_;
  GraphExec other_;
};

// Returns another executable graph of the recording. Without one the report has the node whose
// memory is gone, or why_not. Throws OutOfMemory.
// Source: CUDA does not instantiate a graph with a memset of unmapped memory (driver 580).
std::optional<GraphExec> instantiate(const Recording& recording, const RecordingFacts& facts,
                                     GraphAPI& graphs, InspectionReport& report) {
  try {
    return GraphExec(graphs, recording.graph);
  } catch (const DeviceError& error) {
    (void)graphs.take_last_error();
    const auto lacks_memory = [](const InspectedNode& node) {
      return node.type != NodeType::kKernel &&
             std::ranges::any_of(node.words, &InspectedWord::is_gone);
    };
    const auto suspect = std::ranges::find_if(report.suspects, lacks_memory);
    if (suspect == report.suspects.end()) {
      report.why_not = error.what();
    } else {
      report.failed = facts.describe(suspect->number);
      report.error = error.what();
    }
    return std::nullopt;
  }
}

}  // namespace

void wait_for_others(FoundRecording& found) {
  Engine& engine = found.engine;
  const InputList& inputs = found.call().inputs();
  note_moved_inputs(engine, *found.node, inputs);
  wait_for_readers(engine, found.function, inputs);
  wait_for_readers(found.node->recording, engine.memory->streams());
  wait_for_neighbours(engine, found.function, inputs, &found.node->recording);
  engine.memory->streams().wait_for_due();
}

void run_nodes(ExecHandle exec, std::span<const NodeContents> nodes,
               std::span<const std::size_t> order, const RecordingFacts& facts, StreamRef stream,
               InspectionReport& report, const NodeHooks& hooks) {
  GraphAPI& graphs = stream.graphs();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Code code = graphs.enable_node(exec, nodes[i].node, false);
    if (ok(code)) continue;
    report.why_not =
        str_format("{} cannot be left out of a launch: {}", facts.describe(i).name, name(code));
    (void)graphs.take_last_error();
    return;
  }
  for (const std::size_t i : order) {
    const NodeHandle node = nodes[i].node;
    Code code = graphs.enable_node(exec, node, true);
    if (ok(code)) code = graphs.launch(exec, stream.handle());
    if (ok(code)) code = stream.api().synchronize_stream(stream.handle());
    if (ok(code)) code = graphs.enable_node(exec, node, false);
    if (!ok(code)) {
      (void)graphs.take_last_error();
      report.failed = facts.describe(i);
      report.error = str_format("{} ({}): {}", name(code), static_cast<int>(code), explain(code));
      return;
    }
    ++report.runs;
    if (hooks.after != nullptr) hooks.after(i);
  }
}

void run_as_replay(FoundRecording& found, const RecordingFacts& facts, InspectionReport& report,
                   const NodeHooks& hooks) {
  Recording& recording = found.node->recording;
  ContextMemory& memory = *found.engine.memory;
  const StreamRef stream = memory.stream();
  const DeviceScope current = stream.make_device_current();
  const RelaxedCapture relaxed(&stream.graphs());  // other threads may capture
  const InputList& inputs = found.call().inputs();
  std::optional<OutputCopies> copies;
  memory.end_tracking();
  if (recording.copies_outputs()) {
    copies.emplace(memory, inputs, recording.copies_of_outputs);
    recording.output_copies = copies->tensors();
  }
  std::optional<GraphExec> exec = instantiate(recording, facts, stream.graphs(), report);
  if (!exec) return;
  const ExchangedExec exchanged(recording, *std::move(exec));
  (void)bind(recording, copies ? copies->inputs() : inputs);
  const TakenDraws draws(recording);
  wait_for_others(found);
  if (hooks.before != nullptr) hooks.before();
  stream.synchronize();  // an error of earlier work does not belong to a node
  const auto begin = std::chrono::steady_clock::now();
  run_nodes(recording.exec.handle(), facts.nodes(), facts.order(), facts, stream, report, hooks);
  report.time = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - begin);
  for (GatherNode& root : recording.roots)
    root.launched(stream);
}

InspectionReport inspect(const FunctionHandle& function, const InputList& inputs) {
  FoundRecording found(function, inputs, "inspect()");
  InspectionReport report;
  report.function = function.name();
  report.why_not = found.why_not;
  if (found.node == nullptr) return report;
  report.recording = found.node->id;
  const RecordingFacts facts(found.node->recording, found.call(),
                             found.engine.memory->stream().api());
  report.nodes = facts.nodes().size();
  report.suspects = facts.suspects();
  report.why_not = facts.why_not();
  if (report.why_not.empty()) run_as_replay(found, facts, report);
  if (!report.has_failed()) found.entry.finish();
  return report;
}

InspectionReport inspect(Steps& steps, const Key& key, std::span<const Binding> bindings,
                         StreamRef stream) {
  const InputList inputs = steps.checked_inputs(key, bindings);
  const StreamScope scope(stream ? stream : current_stream_or_none());
  return inspect(steps, inputs);
}

}  // namespace cgtree
