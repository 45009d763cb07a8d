// decide(): what to do with a call. A pure function; nothing is consumed before it has answered.
#pragma once

#include <cstddef>

#include "cgtree/skip_reason.h"
#include "cgtree/tree/node.h"

namespace cgtree {

// All that a decision depends on.
struct Situation {
  const FunctionState& function;
  const Node& current;  // the node that ran last, or the root
  InputList inputs;
  const LaneMemory& memory;
  bool has_graphs = true;      // the device's capability
  std::size_t recordings = 0;  // of the context
  std::size_t max_recordings = 0;
};

struct Decision {
  enum class Action { kReplay, kWarmUp, kRecord, kSkip };

  Action action = Action::kSkip;
  Node* node = nullptr;                       // kReplay: what to replay
  SkipReason reason = SkipReason::kDisabled;  // kSkip: why
  Mismatch mismatch;  // kRecord, and kSkip at a limit: why the nearest did not fit
};

// The node that followed the current one last time, if it fits: all that a steady loop asks. Else
// null.
Node* predict(const Situation& situation);

// Requires that all inputs are defined and none is stale.
Decision decide(const Situation& situation);

}  // namespace cgtree
