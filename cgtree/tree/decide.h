// decide(): what to do with a call. A pure function; nothing is consumed before it has answered.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cgtree/graph_scope.h"
#include "cgtree/skip_reason.h"
#include "cgtree/tree/node.h"

namespace cgtree {

// Of a context.
struct Limits {
  std::size_t recordings = 0;
  std::size_t depth = 0;
  AtLimit at_limit = AtLimit::kRunEagerly;
  std::size_t graph_bytes = SIZE_MAX;
  std::chrono::microseconds recording_time = std::chrono::microseconds::max();
};

// By a context so far, of what is limited.
struct Spent {
  std::size_t graph_bytes = 0;  // of the recordings that are there
  std::chrono::microseconds recording_time{0};
};

// All that a decision depends on.
struct Situation {
  const FunctionState& function;
  const Node& current;  // the node that ran last, or the root
  InputList inputs;
  const ContextMemory& memory;
  std::span<const std::unique_ptr<Node>> nodes;  // of the context
  const Limits& limits;
  std::size_t depth = 0;   // nodes from the root to the current one
  bool has_graphs = true;  // the device's capability
  GraphWish wish = GraphWish::kNone;
  Spent spent = {};

  bool is_off() const noexcept {
    return wish != GraphWish::kNone ? wish == GraphWish::kNoGraph : !function.options.enabled;
  }
};

struct Decision {
  enum class Action { kReplay, kWarmUp, kRecord, kSkip, kThrow };

  Action action = Action::kSkip;
  Node* node = nullptr;                       // kReplay: what to replay
  SkipReason reason = SkipReason::kDisabled;  // kSkip, kThrow: why
  Mismatch mismatch;  // not kReplay: why the nearest recording of the same signature does not fit
  Node* evict = nullptr;  // kRecord: what must go first, if anything
};

// The node that followed the current one last time, if it fits: all that a steady loop asks. Else
// null, as it is where inputs are borrowed.
Node* predict(const Situation& situation);

// Requires that all inputs are defined, none is stale, and the producers of those that are borrowed
// were waited for.
Decision decide(const Situation& situation);

}  // namespace cgtree
