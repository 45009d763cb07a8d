// decide(): what to do with a call. Nothing is consumed before it has returned. explain(): why, by
// comparing the call with the recordings that there are.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cgtree/tree/tree.h"
#include "cgtree/values/explanation.h"
#include "cgtree/values/graph_scope.h"

namespace cgtree {

// The limits of a context.
struct Limits {
  std::size_t recordings = 0;
  AtLimit at_limit = AtLimit::kRunEagerly;
  std::size_t graph_bytes = SIZE_MAX;
  std::chrono::microseconds recording_time = std::chrono::microseconds::max();
};

// A DecisionInput is all that a decision depends on, except for the call.
struct DecisionInput {
  const Tree& tree;
  const FunctionState& function;  // the call's
  const ContextMemory& memory;
  const Limits& limits;
  bool has_graphs = true;  // whether the device has them
  GraphOverride graph_override = GraphOverride::kNone;
};

struct Decision {
  Outcome outcome = Outcome::kRunEagerly;
  Node* node = nullptr;                       // kReplay
  SkipReason reason = SkipReason::kDisabled;  // kSkip, kThrow: why
  // Not kReplay: why the nearest recording of the same signature does not fit.
  Mismatch::Kind mismatch = Mismatch::Kind::kNone;
  const Node* nearest = nullptr;  // that recording
  // kRecord: outputs are to be copied, and with them managed inputs that have moved, so that the
  // recording fits whatever is held.
  bool copies = false;
  Node* evict = nullptr;  // kRecord: evicted for it, or null

  bool is_frozen() const noexcept {
    return (outcome == Outcome::kRunEagerly || outcome == Outcome::kThrow) &&
           reason == SkipReason::kFrozen;
  }
};

// Returns whether calls of the function are not to be graphed.
inline bool is_off(const Function& function, GraphOverride graph_override) noexcept {
  return graph_override != GraphOverride::kNone ? graph_override == GraphOverride::kNoGraph
                                                : !function.options.enabled;
}

// Returns the node of the function that followed the current one last time, if it fits: all that a
// steady loop asks. Else null; always null if inputs are borrowed, unless kTakesBorrowed. Does not
// allocate. kGuarded: it has guards, which are asked, and whose exceptions are thrown.
template <bool kTakesBorrowed = false, bool kGuarded = false>
inline Node* predict(const Node& current, const FunctionState& function, const InputList& inputs,
                     const ContextMemory& memory, GraphOverride graph_override) {
  if (is_off(function, graph_override)) [[unlikely]] {
    return nullptr;
  }
  Node* const next = current.predict < kGuarded ? Node::Hint::kGuards : 0 > (&function);
  const bool is_it = next != nullptr &&
                     fits<kTakesBorrowed>(next->recording, inputs, memory) == Mismatch::Kind::kNone;
  if constexpr (kGuarded) return is_it && hold(next->recording.guards) ? next : nullptr;
  return is_it ? next : nullptr;
}

// As predict(), for a function that was given borrowed inputs. Requires: their producers are waited
// for before the replay.
struct LentPrediction {
  Node* node = nullptr;
  const InputRun* known = nullptr;  // whose inputs it knows, or null
};
LentPrediction predict_lent(const Node& current, const FunctionState& function,
                            const InputList& inputs, const ContextMemory& memory,
                            GraphOverride graph_override);

// As predict(), with the recording that calls with this key have used last. Asks guards.
Node* predict_by_key(const FunctionState& function, const InputList& inputs,
                     const ContextMemory& memory, GraphOverride graph_override);

// As predict(), with the other recordings of the key that followed last: other checked addresses,
// or other answers of guards, came back. Begins behind that recording, as sessions take turns in
// the order in which they were recorded. A recording that is held back is left to decide().
Node* predict_sibling(const Node& current, const FunctionState& function, const InputList& inputs,
                      const ContextMemory& memory, GraphOverride graph_override);

// Decides about a call. While the function is precaptured, hints are not asked. A pure function of
// its arguments and the answers of guards, whose exceptions it throws; the call's inputs become
// those that the decision is about, padded as the function's axes choose. Requires: call.check()
// has returned, and the producers of borrowed inputs were waited for.
Decision decide(const DecisionInput& facts, Call& call);

// Returns whether a recording is to have its outputs apart from those of all others.
// A loop holds outputs where earlier recordings write, or gives this one outputs that lie elsewhere
// than before. A recording whose outputs lie apart from all others fits in every round of the loop.
// But a function that is given outputs of its own closes its loop only with one at an address that
// it knows, in memory that is used again: it is placed by fit.
bool lies_apart(const Decision& decision, const Call& call, const ContextMemory& memory);

// Returns all that keeps `recording` from being replayed with these inputs, where fits() stops at
// the first mismatch; without words. Empty exactly if it fits. Pure.
std::vector<Mismatch> find_mismatches(const Recording& recording, InputList inputs,
                                      const ContextMemory& memory);

// Returns the way of a call, and the reason, without words. Except for replays it compares the call
// with decision.nearest, so that it costs the same however many recordings and outputs there are.
// Without one it is the nearest of the function's recordings: those of the same signature come
// first, then those with the fewest mismatches, then the oldest.
Explanation explain(const Decision& decision, const DecisionInput& facts, const Call& call);

}  // namespace cgtree
