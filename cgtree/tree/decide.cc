// decide(): chooses among replay, warm-up, recording, eager run and refusal of a call.
#include "cgtree/tree/decide.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "interop/tensor/stream_synchronization.h"

namespace cgtree {
namespace {

using Kind = Mismatch::Kind;

// Returns a reason that holds whatever has been recorded.
std::optional<SkipReason> refused(const DecisionInput& s, const Call& call) {
  if (s.graph_override == GraphOverride::kNoGraph) return SkipReason::kNoGraphScope;
  if (is_off(s.function, s.graph_override)) return SkipReason::kDisabled;
  if (!s.has_graphs) return SkipReason::kNoGraphs;
  if (s.memory.is_apart()) return SkipReason::kOtherPartition;
  for (std::size_t i = 0; i < call.inputs().size(); ++i) {
    const Treatment treatment = call.treatment(i);
    if (treatment == Treatment::kValue || treatment == Treatment::kNoBuffer) continue;
    if (call.inputs()[i].device() != s.memory.device()) return SkipReason::kOtherDevice;
  }
  if (call.find_overlap()) return SkipReason::kOverlappingInputs;
  return std::nullopt;
}

// Returns a recording of the key that fits, or null and the nearest mismatch.
Node* choose(const DecisionInput& s, const KeyState& key, const Call& call, Decision* decision) {
  for (Node* node : key.nodes) {
    Kind mismatch = fits<true>(node->recording, call.inputs(), s.memory);
    if (!hold(node->recording.guards, mismatch == Kind::kNone)) mismatch = Kind::kGuard;
    if (mismatch == Kind::kNone) return node;
    if (mismatch <= decision->mismatch) continue;
    decision->mismatch = mismatch;
    decision->nearest = node;
  }
  return nullptr;
}

// Returns `decision` at a limit. If find_victim() finds nothing to evict, the call runs eagerly.
template <typename FindVictim>
Decision limited(Decision decision, SkipReason reason, AtLimit policy, FindVictim find_victim) {
  decision.reason = reason;
  decision.outcome = policy == AtLimit::kThrow ? Outcome::kThrow : Outcome::kRunEagerly;
  if (policy != AtLimit::kEvict) return decision;
  decision.evict = find_victim();
  if (decision.evict != nullptr) decision.outcome = Outcome::kRecord;
  return decision;
}

// Returns whether the time for warm-ups and recordings is spent.
bool is_out_of_time(const DecisionInput& s) {
  return s.tree.spent.recording_time.get() >= s.limits.recording_time;
}

Decision out_of_time(const DecisionInput& s, Decision decision) {
  return limited(decision, SkipReason::kTimeLimit, s.limits.at_limit,
                 []() -> Node* { return nullptr; });
}

// Returns the decision to record, if every limit allows another recording.
Decision record(const DecisionInput& s, Decision decision) {
  const CompileOptions& options = s.function.options;
  if (s.function.recordings >= options.max_recordings) {
    return limited(decision, SkipReason::kFunctionLimit, options.at_limit, [&] {
      return s.tree.least_recently_used(
          [&](const Node& node) { return node.function == &s.function; });
    });
  }
  const auto find_any = [&] {
    return s.tree.least_recently_used([](const Node&) { return true; });
  };
  if (s.tree.nodes().size() >= s.limits.recordings) {
    return limited(decision, SkipReason::kContextLimit, s.limits.at_limit, find_any);
  }
  if (s.tree.spent.graph_bytes >= s.limits.graph_bytes) {
    return limited(decision, SkipReason::kGraphBytesLimit, s.limits.at_limit, find_any);
  }
  decision.outcome = Outcome::kRecord;
  return decision;
}

// Returns the outcome of a frozen function instead of a warm-up or a recording; else nothing.
std::optional<Decision> frozen(const DecisionInput& s, Decision decision) {
  const std::optional<WhenFrozen> when = s.function.frozen.get();
  if (!when) return std::nullopt;
  decision.outcome = *when == WhenFrozen::kThrow ? Outcome::kThrow : Outcome::kRunEagerly;
  decision.reason = SkipReason::kFrozen;
  return decision;
}

// Returns the node if it is not null, it fits, and its guards hold; else null.
template <bool kTakesBorrowed>
inline Node* if_it_fits(Node* node, const InputList& inputs, const ContextMemory& memory) {
  const bool is_it = node != nullptr &&
                     fits<kTakesBorrowed>(node->recording, inputs, memory) == Kind::kNone &&
                     hold(node->recording.guards);
  return is_it ? node : nullptr;
}

// Returns the recording that calls with this key used last, or null.
Node* last_of_key(const FunctionState& function, const InputList& inputs) {
  const auto last = function.last_of_key.find(std::hash<std::string_view>()(inputs.key()));
  return last == function.last_of_key.end() ? nullptr : last->second;
}

bool is_precaptured(const DecisionInput& s) {
  return s.function.precaptures.load(std::memory_order_relaxed) > 0;
}

// Returns the recording that followed last time, held back or not, if it fits; otherwise the one
// that predict_by_key() finds, but also if it is held back. Returns null for precapture(): its
// choice among several recordings must be a function of the recordings alone, because
// predict_memory(), which makes none, leaves hints unchanged. A recording that copies its outputs
// is not a hint: an older recording that fits is cheaper.
Node* hinted(const DecisionInput& s, const Call& call) {
  const InputList& inputs = call.inputs();
  if (is_precaptured(s) || is_off(s.function, s.graph_override) || s.memory.is_apart()) {
    return nullptr;
  }
  const auto usable = [&](Node* node) {
    const bool copies = node != nullptr && node->recording.copies_outputs();
    return copies ? nullptr : if_it_fits<true>(node, inputs, s.memory);
  };
  Node* const next = usable(s.tree.current().last_of(&s.function));
  if (next != nullptr || inputs.key().empty()) return next;
  Node* const last = last_of_key(s.function, inputs);
  return last != nullptr && last->is_held_back ? usable(last) : nullptr;
}

bool is_of_held(Kind mismatch) {
  return mismatch == Kind::kFootprint || mismatch == Kind::kManagedAddress;
}

// Returns whether a recording must wait, because earlier ones did not pay. It never waits if the
// caller requires a graph, or if release_memory() dropped a recording that was in use.
bool must_wait(const DecisionInput& s, const KeyState& key, const Call& call,
               const Decision& decision) {
  if (is_precaptured(s) || s.function.options.require_graph || key.released > 0) return false;
  if (s.function.evictions.waits()) return true;
  if (!key.remakes.waits()) return false;
  if (decision.mismatch == Kind::kGuard || key.nodes.empty()) return !key.knows_answers();
  const bool has_come_before =
      decision.mismatch == Kind::kStaticAddress &&
      std::ranges::find(key.waited, call.hash_of_places()) != key.waited.end();
  return !has_come_before;
}

// Decides about the inputs as given, padded or not.
Decision decide_as_is(const DecisionInput& s, const Call& call) {
  if (Node* const next = hinted(s, call)) return {.outcome = Outcome::kReplay, .node = next};
  if (const auto reason = refused(s, call)) {
    return {.outcome = Outcome::kRunEagerly, .reason = *reason};
  }

  const KeyState* key = s.function.find(call);
  if (key == nullptr || !key->warmed_up) {
    if (const auto instead = frozen(s, {})) return *instead;
    if (is_out_of_time(s)) return out_of_time(s, {});
    return {.outcome = Outcome::kWarmUp};
  }
  if (key->is_too_large)
    return {.outcome = Outcome::kRunEagerly, .reason = SkipReason::kGraphBytesLimit};
  Decision decision;
  if (Node* const node = choose(s, *key, call, &decision)) {
    return {.outcome = Outcome::kReplay, .node = node};
  }
  if (key->captures.waits()) {
    decision.reason = key->capture_reason;
    return decision;
  }
  if (decision.mismatch == Kind::kStaticAddress &&
      s.function.options.on_static_change == OnStaticChange::kThrow) {
    decision.outcome = Outcome::kThrow;
    decision.reason = SkipReason::kStaticChanged;
    return decision;
  }
  if (key->released == 0) {
    if (const auto instead = frozen(s, decision)) return *instead;
  }
  if (is_out_of_time(s)) return out_of_time(s, decision);
  // precapture() makes as many recordings as a loop that holds results needs.
  decision.copies = !is_precaptured(s) && is_of_held(decision.mismatch) &&
                    key->remakes.failures() >= KeyState::kBeforeCopies;
  if (must_wait(s, *key, call, decision)) {
    const bool is_of_guard = decision.mismatch == Kind::kGuard || !key->knows_answers();
    decision.reason = is_of_guard ? SkipReason::kChangingGuard : SkipReason::kBacksOff;
    return decision;
  }
  const bool is_warm = s.memory.holds_workspaces(key->workspaces) && key->knows_answers();
  if (!is_warm) return {.outcome = Outcome::kWarmUp};
  return record(s, decision);
}

// Pads the call to the recording that fits with the least work, and returns it; else null.
Node* smallest_that_holds(const DecisionInput& s, Call& call) {
  AxisPlan& plan = *s.function.axes;
  const InputList actual = call.inputs();
  AxisSizes& padded = call.axes().padded;
  AxisSizes best = padded;
  Node* smallest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [hash, keys] : s.function.keys) {
    for (const auto& key : keys) {
      if (!plan.may_pad_to(key->padded, call.axes()) || plan.work(key->padded) >= least) continue;
      padded = key->padded;
      const InputList inputs = plan.pad(actual, call.axes());
      if (!key->signature.matches(inputs)) continue;
      for (Node* node : key->nodes) {
        if (if_it_fits<true>(node, inputs, s.memory) == nullptr) continue;
        smallest = node;
        best = key->padded;
        least = plan.work(best);
        break;
      }
    }
  }
  padded = best;
  if (smallest != nullptr) call.set_inputs(plan.pad(actual, call.axes()));
  return smallest;
}

// Returns whether a recording of the call's key was dropped to release memory.
bool is_made_again(const DecisionInput& s, const Call& call) {
  const KeyState* const key = s.function.find(call);
  return key != nullptr && key->released > 0;
}

Decision decide_with_axes(const DecisionInput& s, Call& call) {
  AxisPlan& plan = *s.function.axes;
  const InputList actual = call.inputs().padded_as(nullptr).with_key(call.actual_key());
  const AxisChoice choice = plan.choose(call.axes());
  if (choice.kind == AxisChoice::Kind::kSkip) return {.reason = choice.reason};
  if (choice.kind == AxisChoice::Kind::kThrow) {
    return {.outcome = Outcome::kThrow, .reason = choice.reason};
  }
  WhileMissing policy = WhileMissing::kNextLarger;
  Decision otherwise{.reason = choice.reason};
  if (choice.kind == AxisChoice::Kind::kSize) {
    call.set_inputs(plan.pad(actual, call.axes()));
    const Decision decision = decide_as_is(s, call);
    policy = is_precaptured(s) ? WhileMissing::kRecord
             : plan.learns()   ? WhileMissing::kNextLarger
                               : s.function.options.while_missing;
    const bool is_frozen = decision.is_frozen();
    const bool is_missing =
        is_frozen || decision.outcome == Outcome::kWarmUp || decision.outcome == Outcome::kRecord;
    const bool is_recorded =
        policy == WhileMissing::kRecord || (!plan.learns() && is_made_again(s, call));
    if (!is_missing || is_recorded) return decision;
    otherwise = is_frozen ? decision : Decision{.reason = SkipReason::kNotRecorded};
    call.set_inputs(actual);
  }
  if (policy == WhileMissing::kNextLarger) {
    if (Node* const node = smallest_that_holds(s, call)) {
      return {.outcome = Outcome::kReplay, .node = node};
    }
  }
  return otherwise;
}

}  // namespace

LentPrediction predict_lent(const Node& current, const FunctionState& function,
                            const InputList& inputs, const ContextMemory& memory,
                            GraphOverride graph_override) {
  Node* const node = predict<true>(current, function, inputs, memory, graph_override);
  if (node == nullptr) return {};
  const InputRun& statics = node->recording.statics;
  const InputRun* const known = statics.is_known<true>(inputs) ? &statics : nullptr;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (known != nullptr && i == known->begin()) i = known->end();
    if (i == inputs.size()) break;
    const bool is_written = inputs.is_buffer(i) || function.input_options(i).is_mutated;
    if (is_written && is_read_only(inputs[i])) return {};
  }
  return {node, known};
}

Node* predict_by_key(const FunctionState& function, const InputList& inputs,
                     const ContextMemory& memory, GraphOverride graph_override) {
  if (is_off(function, graph_override)) return nullptr;
  Node* const last = last_of_key(function, inputs);
  const bool is_plain = last != nullptr && !last->is_held_back;
  return is_plain ? if_it_fits<false>(last, inputs, memory) : nullptr;
}

Node* predict_sibling(const Node& current, const FunctionState& function, const InputList& inputs,
                      const ContextMemory& memory, GraphOverride graph_override) {
  const Node* const last =
      inputs.key().empty() ? current.last_of(&function) : last_of_key(function, inputs);
  if (last == nullptr || last->is_held_back || is_off(function, graph_override)) return nullptr;
  const std::vector<Node*>& nodes = last->key->nodes;
  const auto at = static_cast<std::size_t>(std::ranges::find(nodes, last) - nodes.begin());
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    Node* const node = nodes[(at + i) % nodes.size()];
    const bool is_it = hold(node->recording.guards, /*throws=*/false) &&
                       fits<false>(node->recording, inputs, memory) == Kind::kNone;
    if (is_it) return node->is_held_back ? nullptr : node;
  }
  return nullptr;
}

bool lies_apart(const Decision& decision, const Call& call, const ContextMemory& memory) {
  if (decision.mismatch != Mismatch::Kind::kManagedAddress)
    return decision.mismatch == Mismatch::Kind::kFootprint;
  const InputList inputs = call.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Storage* const storage = inputs[i].defined() ? inputs[i].storage().get() : nullptr;
    const bool is_managed = storage != nullptr && memory.manages(*storage);
    if (is_managed && storage->tag.function == call.function().id) return false;
  }
  return true;
}

Decision decide(const DecisionInput& s, Call& call) {
  const bool pads =
      s.function.axes != nullptr && !is_off(s.function, s.graph_override) && !s.memory.is_apart();
  return pads ? decide_with_axes(s, call) : decide_as_is(s, call);
}

}  // namespace cgtree
