// explain(): finds the nearest recording, and the mismatches that prevent its replay.
#include <algorithm>
#include <utility>

#include "base/format.h"
#include "cgtree/tree/decide.h"

namespace cgtree {
namespace {

using Kind = Mismatch::Kind;

bool is_of_held_output(const Mismatch& mismatch) {
  return mismatch.kind == Kind::kFootprint;
}

bool meet(InputList inputs, const Overlap& pair) {
  const Tensor& first = inputs[pair.first];
  const Tensor& second = inputs[pair.second];
  return first.defined() && second.defined() && may_overlap(first, second);
}

// A recording and its mismatches; null and an empty list if there is none.
struct Nearest {
  const Node* node = nullptr;
  std::vector<Mismatch> mismatches;
};

// Returns the nearest recording of the call's key, or else among the oldest of the function.
Nearest find_nearest(const DecisionInput& facts, const Call& call) {
  constexpr int kMost = 16;
  const FunctionState* const function = &facts.function;
  Nearest nearest;
  std::ptrdiff_t least = 0;
  const auto consider = [&](const Node& node) {
    auto found = find_mismatches(node.recording, call.inputs(), facts.memory);
    const auto held = std::ranges::count_if(found, is_of_held_output);
    const auto count = std::ssize(found) - std::max<std::ptrdiff_t>(held - 1, 0);
    if (nearest.node != nullptr && least <= count) return;
    least = count;
    nearest = {&node, std::move(found)};
  };
  if (const KeyState* const own = function->find(call); own != nullptr && !own->nodes.empty()) {
    for (const Node* const node : own->nodes)
      consider(*node);
    return nearest;
  }
  int left = kMost;
  for (const auto& node : facts.tree.nodes()) {
    if (node->function != function) continue;
    consider(*node);
    if (least == 1 || --left == 0) break;
  }
  return nearest;
}

std::string in_words(const Guard::Answer& answer) {
  return answer[1] == 0 ? std::to_string(static_cast<std::int64_t>(answer[0]))
                        : str_format("{:#x} {:#x}", answer[0], answer[1]);
}

// Adds the first guard with another answer, with both sides in words.
void add_guard(const Guards& guards, std::vector<Mismatch>& mismatches) {
  for (const Guard& guard : guards) {
    const std::optional<Guard::Answer> answer = guard.try_ask();
    if (answer == guard.answer) continue;
    mismatches.push_back({.kind = Kind::kGuard,
                          .input_name = guard.name,
                          .recorded = in_words(guard.answer),
                          .given = answer ? in_words(*answer) : "an exception"});
    return;
  }
}

}  // namespace

std::vector<Mismatch> find_mismatches(const Recording& recording, InputList inputs,
                                      const ContextMemory& memory) {
  if (inputs.size() != recording.inputs.size() || inputs.buffers() != recording.buffers) {
    return {{Kind::kInputCount}};
  }
  std::vector<Mismatch> found;
  if (inputs.key() != recording.key) found.push_back({Kind::kKey});
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    const Kind kind = fits_input(recording, i, inputs, memory);
    if (kind != Kind::kNone) found.push_back({kind, i});
  }
  add_guard(recording.guards, found);
  for (const Apart& apart : recording.apart.pairs()) {
    const Overlap& pair = apart.pair;
    if (meet(inputs, pair))
      found.push_back({.kind = Kind::kOverlap, .input = pair.first, .other = pair.second});
  }
  memory.live().for_each_of(recording.conflicts, [&](std::uint32_t number) {
    const std::span<const Range> ranges = recording.footprint.ranges();
    for (std::uint32_t i = 0; i < ranges.size(); ++i) {
      if (ranges[i].overlaps(memory.slot(number).range))
        found.push_back({.kind = Kind::kFootprint, .input = i, .other = number});
    }
  });
  return found;
}

Explanation explain(const Decision& decision, const DecisionInput& facts, const Call& call) {
  Explanation why;
  why.outcome = decision.outcome;
  if (why.outcome == Outcome::kReplay) {
    why.node = decision.node->id;
    return why;
  }
  if (why.outcome == Outcome::kRunEagerly || why.outcome == Outcome::kThrow) {
    why.skip_reason = decision.reason;
  }
  const KeyState* const own = facts.function.find(call);
  why.made_again = own != nullptr && own->was_recorded && own->nodes.empty();
  Nearest nearest;  // empty for a dropped recording that is made again
  if (const Node* const known = decision.nearest) {
    nearest = {known, find_mismatches(known->recording, call.inputs(), facts.memory)};
  } else if (!why.made_again) {
    nearest = find_nearest(facts, call);
  }
  if (nearest.node != nullptr) why.nearest = nearest.node->id;
  why.mismatches = std::move(nearest.mismatches);
  if (own != nullptr && own->nodes.empty() && !own->warmed_for.empty())
    add_guard(own->warmed_for.back(), why.mismatches);
  const auto is_overlap = [](const Mismatch& mismatch) { return mismatch.kind == Kind::kOverlap; };
  const Overlap overlap = call.find_overlap();
  if (overlap && std::ranges::none_of(why.mismatches, is_overlap)) {
    why.mismatches.push_back(
        {.kind = Kind::kOverlap, .input = overlap.first, .other = overlap.second});
  }
  return why;
}

}  // namespace cgtree
