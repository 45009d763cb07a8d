// The life of a call, as a decision.
#include "cgtree/tree/decide.h"

#include <algorithm>
#include <optional>

#include "cgtree/tree/eviction.h"
#include "cgtree/record/treatment.h"

namespace cgtree {
namespace {

using Action = Decision::Action;

// Reasons that hold whatever has been recorded.
std::optional<SkipReason> refused(const Situation& s) {
  if (s.wish == GraphWish::kNoGraph) return SkipReason::kNoGraphScope;
  if (s.is_off()) return SkipReason::kDisabled;
  if (!s.has_graphs) return SkipReason::kNoGraphs;
  for (std::size_t i = 0; i < s.inputs.size(); ++i) {
    const Treatment treatment = treat(s.function, s.memory, s.inputs, i);
    if (treatment == Treatment::kValue || treatment == Treatment::kNoBuffer) continue;
    if (s.inputs[i].device() != s.memory.device()) return SkipReason::kOtherDevice;
  }
  if (find_unwanted_write(s.function, s.memory, s.inputs)) return SkipReason::kMutatedInput;
  if (find_overlap(s.function, s.memory, s.inputs)) return SkipReason::kOverlappingInputs;
  if (s.function.captures_to_try == 0) return SkipReason::kCaptureFailed;
  return std::nullopt;
}

// A later stage means a nearer fit, hence a more telling reason.
bool nearer(const Mismatch& a, const Mismatch& b) {
  return a.kind > b.kind;
}

// The recording to replay: one that has followed the current node if any fits, else any other.
Node* choose(const Situation& s, const KeyState& key, Decision* decision) {
  Node* elsewhere = nullptr;
  for (Node* node : key.nodes) {
    const Mismatch mismatch = fits<true>(node->recording, s.inputs, s.memory);
    if (mismatch.fits()) {
      if (node->parent == &s.current) return node;
      if (elsewhere == nullptr) elsewhere = node;
    } else if (nearer(mismatch, decision->mismatch)) {
      decision->mismatch = mismatch;
    }
  }
  return elsewhere;
}

// `decision` at a limit. Where there is nothing to evict, the call runs eagerly.
Decision limited(Decision decision, SkipReason reason, AtLimit policy, Node* victim) {
  decision.reason = reason;
  if (policy == AtLimit::kThrow) {
    decision.action = Action::kThrow;
  } else if (policy == AtLimit::kEvict && victim != nullptr) {
    decision.action = Action::kRecord;
    decision.evict = victim;
  } else {
    decision.action = Action::kSkip;
  }
  return decision;
}

// Whether neither a warm-up nor a recording may take more time.
bool is_out_of_time(const Situation& s) {
  return s.spent.recording_time >= s.limits.recording_time;
}

Decision out_of_time(const Situation& s, Decision decision) {
  return limited(std::move(decision), SkipReason::kTimeLimit, s.limits.at_limit, nullptr);
}

// A new recording, where every limit allows one more.
Decision record(const Situation& s, Decision decision) {
  const CompileOptions& options = s.function.options;
  const auto is_ours = [&](const Node& node) { return node.function == &s.function; };
  const auto is_here = [&](const Node& node) { return is_ours(node) && node.parent == &s.current; };
  if (s.function.recordings >= options.max_recordings) {
    return limited(decision, SkipReason::kFunctionLimit, options.at_limit,
                   next_to_evict(s.nodes, is_ours));
  }
  const auto here = std::count_if(s.nodes.begin(), s.nodes.end(),
                                  [&](const auto& node) { return is_here(*node); });
  if (static_cast<std::size_t>(here) >= options.max_recordings_per_place) {
    return limited(decision, SkipReason::kPlaceLimit, options.at_limit,
                   next_to_evict(s.nodes, is_here));
  }
  if (s.depth >= s.limits.depth) {
    return limited(decision, SkipReason::kDepthLimit, s.limits.at_limit, nullptr);
  }
  const auto is_any = [](const Node&) { return true; };
  if (s.nodes.size() >= s.limits.recordings) {
    return limited(decision, SkipReason::kContextLimit, s.limits.at_limit,
                   next_to_evict(s.nodes, is_any));
  }
  if (s.spent.graph_bytes >= s.limits.graph_bytes) {
    return limited(decision, SkipReason::kGraphBytesLimit, s.limits.at_limit,
                   next_to_evict(s.nodes, is_any));
  }
  decision.action = Action::kRecord;
  return decision;
}

// What followed the last time, if it fits.
template <bool kTakesBorrowed>
inline Node* predicted(const Situation& s) {
  if (s.is_off()) return nullptr;
  Node* const node = s.current.predict(&s.function);
  const bool is_it =
      node != nullptr && fits<kTakesBorrowed>(node->recording, s.inputs, s.memory).fits();
  return is_it ? node : nullptr;
}

}  // namespace

Node* predict(const Situation& s) {
  return predicted<false>(s);
}

Decision decide(const Situation& s) {
  if (Node* const next = predicted<true>(s)) return {.action = Action::kReplay, .node = next};
  if (const auto reason = refused(s)) {
    const bool throws = *reason == SkipReason::kMutatedInput &&
                        s.function.options.on_mutated_input == OnMutatedInput::kReject;
    return {.action = throws ? Action::kThrow : Action::kSkip, .reason = *reason};
  }

  const KeyState* key = s.function.find(s.inputs, Signature::hash(s.inputs));
  if (key == nullptr || !key->warmed_up) {
    if (is_out_of_time(s)) return out_of_time(s, {});
    return {.action = Action::kWarmUp};
  }
  if (key->is_too_large) return {.action = Action::kSkip, .reason = SkipReason::kGraphBytesLimit};
  if (key->is_too_small) return {.action = Action::kSkip, .reason = SkipReason::kTooSmall};
  Decision decision;
  if (Node* node = choose(s, *key, &decision)) return {.action = Action::kReplay, .node = node};
  const bool static_changed = decision.mismatch.kind == Mismatch::Kind::kStaticAddress;
  if (static_changed && s.function.options.on_static_change == OnStaticChange::kThrow) {
    decision.action = Action::kThrow;
    decision.reason = SkipReason::kStaticChanged;
    return decision;
  }
  if (is_out_of_time(s)) return out_of_time(s, std::move(decision));
  return record(s, std::move(decision));
}

}  // namespace cgtree
