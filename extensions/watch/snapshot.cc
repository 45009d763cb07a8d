// Writes snapshots; docs/snapshot.md describes them, and changes with kVersion.
#include "extensions/watch/snapshot.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "caching/reports/statistics_json.h"
#include "extensions/watch/snapshot_parts.h"

namespace cgtree {
namespace {

using json = nlohmann::ordered_json;

// Raised when a field is removed or changes its meaning; not when one is added.
constexpr int kVersion = 1;

// Leaves out what the nodes say of nodes that came or went while the list was made.
void drop_unknown_ids(json& nodes) {
  std::vector<std::uint32_t> known;
  for (const json& node : nodes)
    known.push_back(node["id"]);
  const auto is_known = [&](std::uint32_t id) {
    return std::binary_search(known.begin(), known.end(), id);
  };
  for (json& node : nodes) {
    if (!is_known(node["parent"])) node["parent"] = 0;
    json followers = json::array();
    for (const json& id : node["followed_by"]) {
      if (is_known(id)) followers.push_back(id);
    }
    node["followed_by"] = std::move(followers);
  }
}

std::string_view name_of(Region region, const ContextMemory& memory) {
  return memory.pool(region).options().name;
}

json slots_of(const ContextMemory& memory) {
  json list = json::array();
  for (const ContextMemory::SlotState& slot : memory.slot_states()) {
    json entry = {{"slot", slot.number},           {"region", name_of(slot.region, memory)},
                  {"address", slot.range.address}, {"bytes", slot.range.bytes},
                  {"live", slot.is_live},          {"workspace", slot.is_workspace}};
    if (slot.is_live) {
      entry["holds"] = {{"function", memory.function_name(slot.holder.function)},
                        {"output", slot.holder.output}};
    }
    list.push_back(std::move(entry));
  }
  return list;
}

json pools_of(const ContextMemory& memory) {
  json pools = json::object();
  for (const Region region : {Region::kOutput, Region::kScratch, Region::kEager}) {
    const Pool& pool = memory.pool(region);
    json entry = json::parse(to_json(pool.statistics()));
    entry["segments"] = ranges_json(pool.segments());
    // What is in use in the other two pools is what the slots say: replays leave blocks alone.
    if (region == Region::kEager) entry["blocks"] = ranges_json(pool.live());
    pools[name_of(region, memory)] = std::move(entry);
  }
  return pools;
}

}  // namespace

std::string snapshot_json(const Tree& tree, const ContextMemory& memory,
                          const ContextOptions& options,
                          const std::map<std::string, ReplayTimes, std::less<>>& times,
                          const std::map<std::uint32_t, FunctionCauses>& causes) {
  const std::uint32_t current = tree.current_id();
  json functions = json::array();
  json nodes = json::array();
  tree.visit(
      [&](const FunctionState& function) {
        const auto found = causes.find(function.id);
        functions.push_back(
            function_json(function, tree.stats_of(function),
                          found == causes.end() ? FunctionCauses{} : found->second));
      },
      [&](const Node& node) { nodes.push_back(node_json(node, memory)); });
  drop_unknown_ids(nodes);
  const bool has_current =
      std::ranges::any_of(nodes, [&](const json& node) { return node["id"] == current; });
  json replay_times = json::array();
  for (const auto& [function, of_function] : times)
    if (of_function.count > 0) replay_times.push_back(replay_times_json(function, of_function));
  json snapshot = {{"schema", "cgtree.snapshot"},
                   {"version", kVersion},
                   {"time_us", now_us()},
                   {"context", options.name.empty() ? to_string(memory.device()) : options.name},
                   {"device", to_string(memory.device())},
                   {"generation", memory.generation()},
                   {"restores", memory.restores()},
                   {"live_outputs", memory.live_outputs()},
                   {"live_bytes", memory.live_bytes()},
                   {"reserved_bytes", memory.reserved_bytes()},
                   {"recording_us", tree.spent.recording_time.get().count()},
                   {"max_recordings", options.max_recordings},
                   {"verify_every", options.verify_every},
                   {"current", has_current ? current : 0},
                   {"functions", std::move(functions)},
                   {"nodes", std::move(nodes)},
                   {"slots", slots_of(memory)},
                   {"pools", pools_of(memory)}};
  if (!replay_times.empty()) snapshot["replay_times"] = std::move(replay_times);
  // Names are the caller's, and may not be UTF-8.
  return snapshot.dump(1, ' ', false, json::error_handler_t::replace);
}

}  // namespace cgtree
