// The life of a call, as a decision.
#include "cgtree/tree/decide.h"

#include <optional>

namespace cgtree {
namespace {

Decision skip(SkipReason reason) {
  return {Decision::Action::kSkip, nullptr, reason, {}};
}

// Reasons that hold whatever has been recorded.
std::optional<SkipReason> refused(const Situation& s) {
  if (!s.function.options.enabled) return SkipReason::kDisabled;
  if (!s.has_graphs) return SkipReason::kNoGraphs;
  for (std::size_t i = 0; i < s.inputs.size(); ++i) {
    if (s.inputs[i].device() != s.memory.device()) return SkipReason::kOtherDevice;
  }
  for (std::size_t i = 0; i < s.inputs.size(); ++i) {
    const InputOptions options = s.function.input_options(i);
    if (options.is_mutated && !options.is_static && !s.memory.manages(*s.inputs[i].storage())) {
      return SkipReason::kMutatedInput;
    }
  }
  if (!s.function.capture_failure.empty()) return SkipReason::kCaptureFailed;
  return std::nullopt;
}

// A later stage means a nearer fit, hence a more telling reason.
bool nearer(const Mismatch& a, const Mismatch& b) {
  return a.kind > b.kind;
}

// The recording to replay: one that has followed the current node if any fits, else any other.
Node* choose(const Situation& s, const KeyState& key, Mismatch* nearest) {
  Node* elsewhere = nullptr;
  for (Node* node : key.nodes) {
    const Mismatch mismatch = fits(node->recording, s.inputs, s.memory);
    if (mismatch.fits()) {
      if (node->parent == &s.current) return node;
      if (elsewhere == nullptr) elsewhere = node;
    } else if (nearer(mismatch, *nearest)) {
      *nearest = mismatch;
    }
  }
  return elsewhere;
}

}  // namespace

Node* predict(const Situation& s) {
  Node* const node = s.current.predict(&s.function);
  return node != nullptr && fits(node->recording, s.inputs, s.memory).fits() ? node : nullptr;
}

Decision decide(const Situation& s) {
  using Action = Decision::Action;
  if (Node* node = predict(s)) return {Action::kReplay, node, {}, {}};
  if (const auto reason = refused(s)) return skip(*reason);

  const KeyState* key = s.function.find(s.inputs, Signature::hash(s.inputs));
  if (key == nullptr || !key->warmed_up) return {Action::kWarmUp, nullptr, {}, {}};
  Mismatch nearest;
  if (Node* node = choose(s, *key, &nearest)) return {Action::kReplay, node, {}, {}};
  if (s.function.recordings >= s.function.options.max_recordings) {
    return {Action::kSkip, nullptr, SkipReason::kFunctionLimit, nearest};
  }
  if (s.recordings >= s.max_recordings) {
    return {Action::kSkip, nullptr, SkipReason::kContextLimit, nearest};
  }
  return {Action::kRecord, nullptr, {}, nearest};
}

}  // namespace cgtree
