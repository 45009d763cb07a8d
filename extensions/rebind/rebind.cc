// Proves, weighs and prepares the patches of a recording.
#include "extensions/rebind/rebind.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "extensions/rebind/address_words.h"
#include "extensions/rebind/node_rebinding.h"
#include "extensions/rebind/rebind_choice.h"
#include "interop/device/device_api.h"

namespace cgtree {
namespace {

// A PlacedInput is an input, or buffer, that may be rebound, in the kept capture.
struct PlacedInput {
  std::uint32_t input = 0;
  // Of its copy, or of the output for its buffer; 0: without either.
  std::uintptr_t address = 0;
  // The tail node copies from there to another input: the copy is needed.
  bool is_passed_on = false;
};

struct RebindDecision {
  std::vector<RebindChoice> choices;   // one for each
  std::vector<std::uint32_t> inputs;   // the rebound inputs, in the order of Attachment::bind()
  std::vector<std::size_t> alignment;  // required for their addresses
  std::unique_ptr<NodeRebinding> rebinding;
};

MovedInput moved(const Call& call, const PlacedInput& placed) {
  const Tensor& input = call.inputs()[placed.input];
  return {input.address(), placed.address, extent_bytes(input)};
}

std::vector<FoundAddress> prove(const Call& call, DeviceAPI& api, const Graph& graph,
                                const Probe* probe, std::span<const PlacedInput> placed) {
  const auto give_up = [&](const std::string& why) {
    return std::vector<FoundAddress>(placed.size(), FoundAddress{{}, why});
  };
  if (probe == nullptr) return give_up("work that the caller enqueues is captured only once");
  if (!probe->failure.empty()) return give_up(probe->failure);
  std::vector<MovedInput> inputs;
  for (const PlacedInput& one : placed)
    inputs.push_back(moved(call, one));
  std::vector<FoundAddress> found = find_addresses(probe->contents, read_graph(api, graph), inputs);
  for (std::size_t i = 0; i < placed.size(); ++i) {
    if (placed[i].address == 0) {
      found[i].why_not = "the output is not a tensor of its own, of the buffer's layout";
    } else if (placed[i].is_passed_on) {
      found[i].why_not = "an output that lies in it is copied to a buffer";
    } else if (inputs[i].alignment() < call.rebind_alignment(placed[i].input)) {
      found[i].why_not = "its copy is less aligned than InputOptions::alignment";
    }
  }
  return found;
}

RebindCandidate candidate_of(const Call& call, std::uint32_t input, const FoundAddress& found) {
  RebindCandidate candidate;
  candidate.bytes = call.inputs()[input].bytes();
  candidate.nodes = found.nodes();
  candidate.is_copied_in = !call.inputs().is_buffer(input);
  candidate.is_copied_out = call.treatment(input) != Treatment::kCopied;
  candidate.is_forced = call.rebind(input) == Rebind::kAlways;
  return candidate;
}

// `has_root`, `has_tail`: true if other inputs need that node.
RebindDecision decide_rebinding(const Call& call, DeviceAPI& api, const Graph& graph,
                                const Probe* probe, std::span<const PlacedInput> placed,
                                bool has_root, bool has_tail) {
  std::vector<FoundAddress> found = prove(call, api, graph, probe, placed);
  std::vector<NodeHandle> nodes;
  (void)api.graphs()->graph_nodes(graph.handle(), &nodes);
  NodePatches patches(*api.graphs(), std::move(nodes));
  std::vector<std::size_t> proved;  // positions in `placed`
  std::vector<RebindCandidate> candidates;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    if (found[i].is_proved()) found[i].why_not = patches.prepare(found[i].words);
    const Treatment treatment = call.treatment(placed[i].input);
    if (!found[i].is_proved()) {
      has_root = has_root || is_copied(treatment);
      has_tail = has_tail || treatment != Treatment::kCopied;
      continue;
    }
    proved.push_back(i);
    candidates.push_back(candidate_of(call, placed[i].input, found[i]));
  }
  const std::vector<bool> rebound = choose_rebound(candidates, has_root, has_tail);

  RebindDecision decision;
  for (std::size_t i = 0; i < placed.size(); ++i)
    decision.choices.push_back({placed[i].input, false, 0, found[i].why_not});
  for (std::size_t k = 0; k < proved.size(); ++k) {
    const std::size_t i = proved[k];
    RebindChoice& choice = decision.choices[i];
    choice.nodes = candidates[k].nodes.size();
    choice.is_rebound = rebound[k];
    choice.why = rebound[k] ? "" : "a copy is thought to be cheaper";
    if (!rebound[k]) continue;
    const MovedInput input = moved(call, placed[i]);
    decision.inputs.push_back(choice.input);
    decision.alignment.push_back(input.alignment());
    patches.add_input(found[i].words, input.second);
  }
  decision.rebinding = patches.take();
  return decision;
}

// Returns whether the tail copies from the copy, or output, at `address` to another input.
bool is_passed_on(const CapturedStep& step, std::uint32_t input, std::uintptr_t address) {
  const InputRecord& record = step.recording.inputs[input];
  const auto extent = static_cast<std::size_t>(record.shape.extent());
  const Range copy{address, extent * size_of(record.dtype)};
  return std::ranges::any_of(step.tail.copies, [&](const GatherNode::Copy& other) {
    return other.input != input && copy.overlaps({other.row.fixed, 1});
  });
}

std::vector<PlacedInput> find_placed(const CapturedStep& step) {
  const InputList& inputs = step.call.inputs();
  std::vector<PlacedInput> placed;
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    if (step.call.rebind(i) == Rebind::kNever) continue;
    const std::uintptr_t address = inputs.is_buffer(i) ? step.buffer_sources[i - inputs.step_size()]
                                                       : step.recording.inputs[i].address;
    placed.push_back({i, address, is_passed_on(step, i, address)});
  }
  return placed;
}

}  // namespace

void rebind(CapturedStep& step, const Probe* probe) {
  const std::vector<PlacedInput> placed = find_placed(step);
  if (placed.empty()) return;
  Recording& recording = step.recording;
  const auto is_needed = [&](const GatherNode::Copy& copy) {
    return step.call.rebind(copy.input) == Rebind::kNever;
  };
  const bool has_root =
      !step.root.values.empty() || std::ranges::any_of(step.root.copies, is_needed);
  const bool has_tail = std::ranges::any_of(step.tail.copies, is_needed);
  const Probe broken{.failure = kBreakIsOpaque};
  RebindDecision decision =
      decide_rebinding(step.call, step.memory.stream().api(), recording.graph,
                       recording.further.empty() ? probe : &broken, placed, has_root, has_tail);
  for (std::size_t k = 0; k < decision.inputs.size(); ++k) {
    const std::uint32_t input = decision.inputs[k];
    const auto is_of_input = [&](const GatherNode::Copy& copy) { return copy.input == input; };
    std::erase_if(step.root.copies, is_of_input);
    std::erase_if(step.tail.copies, is_of_input);
    // Earlier allocations at this address, which were freed, are written: only the last range goes.
    const auto at = std::ranges::find(placed, input, &PlacedInput::input)->address;
    std::vector<Range>& ranges = step.allocations.ranges;
    ranges.erase(std::ranges::find(ranges.rbegin(), ranges.rend(), at, &Range::address).base() - 1);
    recording.inputs[input].rebind(decision.alignment[k]);
  }
  recording.rebinds = std::move(decision.choices);
  if (decision.inputs.empty()) return;
  recording.tails.emplace_back(step.memory, std::move(decision.inputs),
                               std::move(decision.rebinding));
}

}  // namespace cgtree
