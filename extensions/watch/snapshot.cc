// Writes snapshots; docs/snapshot.md describes them, and changes with kVersion.
#include "extensions/watch/snapshot.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "caching/reports/statistics_json.h"
#include "extensions/verify/replay_verifier.h"
#include "extensions/watch/event_log.h"

namespace cgtree {
namespace {

using json = nlohmann::ordered_json;

// Raised when a field is removed or changes its meaning; not for a new field.
constexpr int kVersion = 1;

// Removes references to nodes that appeared or were dropped while the list was made.
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
    json entry = slot_json(slot.number, slot.range, slot.is_live, slot.holder, memory);
    entry["region"] = name_of(slot.region, memory);
    entry["workspace"] = slot.is_workspace;
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
    // Slots show the memory in use of the other two pools: replays do not change blocks.
    if (region == Region::kEager) entry["blocks"] = ranges_json(pool.live());
    pools[name_of(region, memory)] = std::move(entry);
  }
  return pools;
}

json replay_times_of(const ReplayTimer& timer) {
  json list = json::array();
  for (const auto& [function, times] : timer.times()) {
    if (times.count == 0) continue;
    list.push_back({{"function", function},
                    {"count", times.count},
                    {"found_idle", times.found_idle},
                    {"device_ns", times.device.count()},
                    {"device_ns_min", times.device_min.count()},
                    {"device_ns_max", times.device_max.count()},
                    {"host_ns", times.host.count()},
                    {"eager_ns", times.eager.count()}});
  }
  return list;
}

}  // namespace

std::string snapshot_json(const Engine& engine) {
  const Tree& tree = engine.tree;
  const ContextMemory& memory = *engine.memory;
  const ContextOptions& options = engine.options;
  const EventLog& log = event_log_of(engine);
  const std::map<std::uint32_t, FunctionCauses> causes = log.causes().all();
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
                   {"verify_every", engine.extensions.find<ReplayVerifier>()->every()},
                   {"current", has_current ? current : 0},
                   {"functions", std::move(functions)},
                   {"nodes", std::move(nodes)},
                   {"slots", slots_of(memory)},
                   {"pools", pools_of(memory)}};
  json replay_times = replay_times_of(log.timer());
  if (!replay_times.empty()) snapshot["replay_times"] = std::move(replay_times);
  // Names come from the caller, and may not be UTF-8.
  return snapshot.dump(1, ' ', false, json::error_handler_t::replace);
}

}  // namespace cgtree
