// decide(): chooses what to do with a call. It consumes nothing. explain(): says why, by comparing
// the call with the recordings.
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

// A DecisionInput is everything that a decision depends on, except the call.
struct DecisionInput {
  const Tree& tree;
  const FunctionState& function;  // the call's
  const ContextMemory& memory;
  const Limits& limits;
  bool has_graphs = true;  // true if the device has graphs
  GraphOverride graph_override = GraphOverride::kNone;
};

struct Decision {
  Outcome outcome = Outcome::kRunEagerly;
  Node* node = nullptr;                       // kReplay
  SkipReason reason = SkipReason::kDisabled;  // kSkip, kThrow: the reason
  // Not kReplay: the mismatch of the nearest recording of the same signature.
  Mismatch::Kind mismatch = Mismatch::Kind::kNone;
  const Node* nearest = nullptr;  // the nearest recording
  // kRecord: copy the outputs, and managed inputs that have moved, so that the recording fits
  // whichever outputs are held.
  bool copies = false;
  Node* evict = nullptr;  // kRecord: the node to evict, or null

  bool is_frozen() const noexcept {
    return (outcome == Outcome::kRunEagerly || outcome == Outcome::kThrow) &&
           reason == SkipReason::kFrozen;
  }
};

// Returns whether graphs are switched off for calls of the function.
inline bool is_off(const Function& function, GraphOverride graph_override) noexcept {
  return graph_override != GraphOverride::kNone ? graph_override == GraphOverride::kNoGraph
                                                : !function.options.enabled;
}

// Returns the node of the function that followed the current node last time, if it fits. A steady
// loop needs no other test. Otherwise null; always null if inputs are borrowed, unless
// kTakesBorrowed. Does not allocate. kGuarded: the node has guards, which are asked; their
// exceptions pass.
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

// As predict(), for a function with borrowed inputs. Requires: the replay waits for producers.
struct LentPrediction {
  Node* node = nullptr;
  const InputRun* known = nullptr;  // the input run of inputs that it knows, or null
};
LentPrediction predict_lent(const Node& current, const FunctionState& function,
                            const InputList& inputs, const ContextMemory& memory,
                            GraphOverride graph_override);

// As predict(), for the recording that calls with this key used last. Asks guards.
Node* predict_by_key(const FunctionState& function, const InputList& inputs,
                     const ContextMemory& memory, GraphOverride graph_override);

// As predict(), for the other recordings of the key that followed last: earlier addresses, or
// earlier answers of guards, may have returned. The search begins behind that recording, because
// sessions take turns in the order of recording. A recording that is held back is left to decide().
Node* predict_sibling(const Node& current, const FunctionState& function, const InputList& inputs,
                      const ContextMemory& memory, GraphOverride graph_override);

// Decides about a call. While the function is precaptured, hints are not used. A pure function of
// its arguments and of the answers of guards, whose exceptions it passes on. It replaces the call's
// inputs by the inputs that it decides about, padded as the function's axes choose. Requires:
// call.check() has returned, and the stream waits for the producers of borrowed inputs.
Decision decide(const DecisionInput& facts, Call& call);

// Returns whether a recording is to have outputs apart from those of all others. This helps a loop
// that holds outputs where earlier recordings write, or that passes this function outputs which lie
// elsewhere than before. A recording whose outputs lie apart from all others fits in every round of
// the loop. But a function that receives its own outputs closes its loop only if an output is at a
// known address, in memory that is used again: it is placed by fit.
bool lies_apart(const Decision& decision, const Call& call, const ContextMemory& memory);

// Returns all mismatches between `recording` and these inputs, without words; fits() stops at the
// first. Empty exactly if the recording fits. Pure.
std::vector<Mismatch> find_mismatches(const Recording& recording, InputList inputs,
                                      const ContextMemory& memory);

// Returns the outcome of a call and its reason, without words. Except for replays, it compares the
// call with decision.nearest alone, so that its cost is independent of the number of recordings and
// outputs. If that is null, it takes the nearest of the function's recordings: first those of the
// same signature, then those with the fewest mismatches, then the oldest.
Explanation explain(const Decision& decision, const DecisionInput& facts, const Call& call);

}  // namespace cgtree
