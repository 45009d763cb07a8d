// Snapshots: a context as JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "cgtree/memory/context_memory.h"
#include "cgtree/tree/tree.h"
#include "cgtree/values/metrics.h"
#include "cgtree/values/options.h"

namespace cgtree {

// Returns functions, recordings and pools as one JSON object, whose schema is docs/snapshot.md.
// `times`: by the name of the function; `causes`: by its number. Any thread, at any time.
std::string snapshot_json(const Tree& tree, const ContextMemory& memory,
                          const ContextOptions& options,
                          const std::map<std::string, ReplayTimes, std::less<>>& times,
                          const std::map<std::uint32_t, FunctionCauses>& causes);

}  // namespace cgtree
