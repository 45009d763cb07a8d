// Captures a step once more, and finds the first node of a recording that differs.
#include <algorithm>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "extensions/inspect/found_recording.h"
#include "extensions/inspect/inspect.h"
#include "extensions/inspect/recording_facts.h"
#include "extensions/inspect/trial_capture.h"
#include "extensions/rebind/address_words.h"
#include "extensions/rebind/read_graph.h"

namespace cgtree {
namespace {

constexpr std::uint64_t kLowestPointer = 4096;

// Returns, for each of the first `count` nodes, the numbers of the nodes that it waits for.
std::vector<std::vector<std::uint32_t>> dependencies(
    std::span<const std::pair<std::uint32_t, std::uint32_t>> edges, std::size_t count) {
  std::vector<std::vector<std::uint32_t>> found(count);
  for (const auto& [from, to] : edges)
    if (from < count && to < count) found[to].push_back(from);
  for (std::vector<std::uint32_t>& list : found)
    std::ranges::sort(list);
  return found;
}

std::string form_of(const NodeContents& node) {
  std::string text = node.type == NodeType::kKernel
                         ? "kernel " + demangled(node.name())
                         : str_format("a node of type {}", static_cast<int>(node.type));
  const auto& [grid, block, shared] = node.dims;
  if (node.type != NodeType::kKernel) return text;
  return text + str_format(" [{} {} {}] x [{} {} {}], {} bytes of shared memory", grid.x, grid.y,
                           grid.z, block.x, block.y, block.z, shared);
}

// Returns the difference between word `k` of two nodes of the same form, or "".
std::string word_difference(const RecordingFacts& facts, std::size_t i, const InspectedWord& word,
                            std::size_t place, std::uint64_t now) {
  if (word.value == now) return "";
  if (facts.may_move(i, place) && now >= kLowestPointer) return "";
  return str_format("has {:#x}{}{} where a new capture has {:#x}", word.value,
                    word.memory.empty() ? "" : ", ", word.memory, now);
}

// Returns the difference between two nodes, or "". `described`: the recorded one.
std::string difference_of(const RecordingFacts& facts, std::size_t i,
                          const InspectedNode& described, const NodeContents& now) {
  const NodeContents& then = facts.nodes()[i];
  if (!are_of_one_form(then, now))
    return str_format("is {} where a new capture has {}", form_of(then), form_of(now));
  if (then.type == NodeType::kMemset && then.bytes != now.bytes)
    return "writes another value than in a new capture";
  for (const InspectedWord& word : described.words) {
    const bool is_kernel = then.type == NodeType::kKernel;
    const std::size_t place =
        is_kernel ? now.parameters()[word.parameter].offset + word.offset : word.parameter;
    const std::string difference = word_difference(facts, i, word, place, value_of(now, word));
    if (difference.empty()) continue;
    return str_format("{} {}", place_of(described, word), difference);
  }
  return "";
}

void compare(const RecordingFacts& facts, std::size_t step_nodes, const GraphContents& now,
             CaptureComparison& comparison) {
  const std::size_t count = std::min(step_nodes, now.nodes.size());
  const auto waits_then = dependencies(facts.numbered_edges(), count);
  const auto waits_now = dependencies(now.edges, count);
  for (std::size_t i = 0; i < count; ++i) {
    InspectedNode described = facts.describe(i);
    std::string difference = difference_of(facts, i, described, now.nodes[i]);
    if (difference.empty() && waits_then[i] != waits_now[i])
      difference = "waits for other nodes than in a new capture";
    ++comparison.nodes;
    comparison.unread += !facts.nodes()[i].is_decoded;
    if (difference.empty()) continue;
    comparison.difference = str_format("node {} of {}: {}", i, step_nodes, difference);
    comparison.recorded = std::move(described);
    return;
  }
  if (step_nodes == now.nodes.size()) return;
  comparison.difference =
      str_format("it has {} nodes of the step, and a new capture {}", step_nodes, now.nodes.size());
}

CaptureComparison compare_with(FoundRecording& found, CaptureMode mode, const TrialWork& work) {
  CaptureComparison comparison;
  comparison.function = found.function.name;
  comparison.why_not = found.why_not;
  if (found.node == nullptr) return comparison;
  const Recording& recording = found.node->recording;
  comparison.recording = found.node->id;
  if (!recording.further.empty()) comparison.why_not = kBreakIsOpaque;
  if (!recording.bodies.empty())
    comparison.why_not = "conditional nodes have another condition in each capture";
  if (recording.costs.allocations > 0)
    comparison.why_not = "memory that its graph allocates lies elsewhere in each capture";
  if (!comparison.why_not.empty()) return comparison;
  Engine& engine = found.engine;
  engine.gate.keep_context();
  const HeldInputs held(found.call().inputs());
  found.call().hold(held);
  const RecordingFacts facts(recording, found.call(), engine.memory->stream().api());
  const auto look = [&](const Recording& made, std::span<const Tensor>) {
    const GraphContents now = read_graph(engine.memory->stream().api(), made.graph);
    if (now.nodes.empty() && !now.opaque.empty()) {
      comparison.why_not = now.opaque;
      return;
    }
    compare(facts, recording.costs.step_nodes, now, comparison);
  };
  const std::string failure = capture_trial(found, mode, work, look);
  if (!failure.empty()) comparison.why_not = "a new capture has failed: " + failure;
  found.entry.finish();
  return comparison;
}

}  // namespace

std::uint64_t value_of(const NodeContents& node, const InspectedWord& word) {
  if (node.type != NodeType::kKernel) return node.memory[word.parameter].address;
  const auto [begin, bytes] = node.parameters()[word.parameter];
  std::uint64_t value = 0;
  std::memcpy(&value, node.bytes.data() + begin + word.offset,
              std::min(sizeof(value), bytes - word.offset));
  return value;
}

std::string capture_trial(FoundRecording& found, CaptureMode mode, const TrialWork& work,
                          const OpenRecording::Look& look) {
  ContextMemory& memory = *found.engine.memory;
  try {
    memory.begin_tracking();
    OpenRecording open(memory, found.call(), found.engine.recorder.capture_on(found.function, mode),
                       found.node->key->output_allocations);
    std::vector<Tensor> outputs;
    std::exception_ptr thrown;
    try {
      outputs = work(open.inputs());
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::vector<Tensor> inputs(open.inputs().begin(), open.inputs().end());
    return open.finish_trial(
        std::move(outputs), thrown,
        [&](const Recording& made, std::span<const Tensor>) { look(made, inputs); });
  } catch (const std::exception& error) {
    (void)memory.stream().graphs().take_last_error();
    return error.what();
  }
}

CaptureComparison compare_captures(const FunctionHandle& function, const InputList& inputs) {
  FoundRecording found(function, inputs, "compare_captures()");
  return compare_with(found, CaptureMode::kThreadLocal, [&](std::span<const Tensor> step_inputs) {
    return run_captured(found.call(), step_inputs);
  });
}

CaptureComparison compare_captures(Steps& steps, const Key& key, std::span<const Binding> bindings,
                                   const StepWork& work, StreamRef stream) {
  const InputList inputs = steps.checked_inputs(key, bindings);
  const StreamScope scope(stream ? stream : current_stream_or_none());
  FoundRecording found(steps, inputs, "compare_captures()");
  return compare_with(found, steps.capture_mode(), [&](std::span<const Tensor> step_inputs) {
    std::vector<void*> addresses;
    for (const Tensor& input : step_inputs)
      addresses.push_back(reinterpret_cast<void*>(input.address()));
    clear_stack();
    work(addresses);
    return std::vector<Tensor>();
  });
}

}  // namespace cgtree
