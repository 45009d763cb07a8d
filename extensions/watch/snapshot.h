// Snapshots: a context as JSON, and the parts of it. docs/snapshot.md has the schema.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "allocator/pool/block.h"
#include "cgtree/memory/context_memory.h"
#include "cgtree/tree/engine.h"
#include "extensions/watch/metrics.h"

namespace cgtree {

// Returns functions, recordings and pools as one JSON object. Any thread, at any time. Requires:
// the context has an event log.
std::string snapshot_json(const Engine& engine);

nlohmann::ordered_json function_json(const FunctionState& function, const FunctionStats& stats,
                                     const FunctionCauses& causes);
nlohmann::ordered_json node_json(const Node& node, const ContextMemory& memory);
// `holder`: of a live slot.
nlohmann::ordered_json slot_json(std::size_t number, Range range, bool is_live,
                                 const Holder& holder, const ContextMemory& memory);
nlohmann::ordered_json ranges_json(std::span<const Range> ranges);

}  // namespace cgtree
