// Cause: why a recording was made, although the function already had some: what has changed since.
#pragma once

#include <vector>

#include "cgtree/tree/node.h"

namespace cgtree {

// All that keeps `recording` from being replayed with these inputs, where fits() stops at the first
// reason; without names. Empty exactly when it fits. Pure.
std::vector<Change> changes(const Recording& recording, InputList inputs, const ContextMemory& memory);

// What recording this call now, after `current`, is for: compared with the function's recordings,
// those of the same signature first, then those that follow `current` too (its siblings), then
// those with the fewest changes.
Cause find_cause(const FunctionState& function, const Node& current, InputList inputs,
                 const ContextMemory& memory);

}  // namespace cgtree
