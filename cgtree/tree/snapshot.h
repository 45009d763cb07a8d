// Snapshot: a context's tree as JSON; docs/snapshot.md is the schema.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cgtree/options.h"
#include "cgtree/tree/tree.h"

namespace cgtree {

// Returns functions, recordings and pools as one JSON object. Throws DeviceError.
std::string snapshot_json(const Tree& tree, ContextMemory& memory, const ContextOptions& options);

// Returns {"nearest", "changes"}: what kept the nearest recording from being replayed.
nlohmann::ordered_json cause_json(const Explanation& why);

}  // namespace cgtree
