// Explain: compares a call with the recordings that there are, and says what differs.
#pragma once

#include <string>
#include <vector>

#include "cgtree/explanation.h"
#include "cgtree/tree/decide.h"

namespace cgtree {

// Returns all that keeps `recording` from being replayed with these inputs, where fits() stops at
// the first mismatch; without the names of inputs. Empty exactly if it fits. Pure.
std::vector<Mismatch> find_mismatches(const Recording& recording, InputList inputs,
                                      const ContextMemory& memory);

// Returns what is to be done with a call, and why. Except for replays and warm-ups it compares the
// call with the nearest of the function's recordings: those of the same signature come first, then
// those with the fewest mismatches, then the oldest.
Explanation explain(const Decision& decision, const FunctionState& function, const Call& call,
                    const ContextMemory& memory);

// Returns what `reason` is about in this call: an axis and its size, an input, what broke a
// capture;
// "" if the reason says it all.
std::string detail_of(SkipReason reason, const FunctionState& function, const Call& call);

}  // namespace cgtree
