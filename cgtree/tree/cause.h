// Cause: why a recording was made, although the function already had some: what has changed since.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cgtree/tree/node.h"

namespace cgtree {

// All that keeps `recording` from being replayed with these inputs, where fits() stops at the first
// reason. Empty exactly when it fits. Pure.
std::vector<Change> changes(const Recording& recording, InputList inputs, const LaneMemory& memory);

// What recording this call now, after `current`, is for: compared with the function's recordings,
// those of the same signature first, then those that follow `current` too (its siblings), then
// those with the fewest changes.
Cause find_cause(const FunctionState& function, const Node& current, InputList inputs,
                 const LaneMemory& memory);

// "static input 1: 0x7f00 recorded, 0x7e00 given".
std::string to_string(const Change& change);

}  // namespace cgtree
