// The parts of a snapshot, which docs/snapshot.md describes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "allocator/pool/block.h"
#include "cgtree/memory/context_memory.h"
#include "cgtree/tree/tree.h"
#include "cgtree/values/metrics.h"

namespace cgtree {

nlohmann::ordered_json function_json(const FunctionState& function, const FunctionStats& stats,
                                     const FunctionCauses& causes);
nlohmann::ordered_json replay_times_json(const std::string& function, const ReplayTimes& times);
nlohmann::ordered_json node_json(const Node& node, const ContextMemory& memory);
nlohmann::ordered_json ranges_json(std::span<const Range> ranges);

}  // namespace cgtree
