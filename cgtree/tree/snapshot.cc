// Writes snapshots; docs/snapshot.md describes them, and changes with kVersion.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "cgtree/tree/event_log.h"
#include "cgtree/tree/tree.h"

namespace cgtree {
namespace {

using json = nlohmann::ordered_json;

// Raised when a field is removed or changes its meaning; not when one is added.
constexpr int kVersion = 1;

std::string_view text_of(OutputRecord::Kind kind) {
  switch (kind) {
    case OutputRecord::Kind::kSlot:
      return "slot";
    case OutputRecord::Kind::kSame:
      return "same_as_output";
    case OutputRecord::Kind::kInput:
      return "input";
    case OutputRecord::Kind::kConstant:
      return "constant";
  }
  return "unknown";
}

json type_of(DType dtype, const Shape& shape) {
  json type = {{"dtype", name(dtype)}, {"shape", shape.dims()}};
  if (!shape.is_contiguous()) type["strides"] = shape.strides();
  return type;
}

// The sizes of an axis that a snapshot lists: the most frequent ones.
constexpr std::size_t kMostSizesListed = 64;

json sizes_of(const AxisPlan& plan, std::size_t axis) {
  std::vector<SizeCount> counts = plan.histogram(axis).counts();
  const SizeCount largest = counts.empty() ? SizeCount() : counts.back();
  std::ranges::stable_sort(counts, std::greater(), &SizeCount::count);
  if (counts.size() > kMostSizesListed) counts.resize(kMostSizesListed);
  if (largest.count > 0 && !std::ranges::count(counts, largest)) counts.push_back(largest);
  std::ranges::sort(counts, {}, &SizeCount::size);
  json list = json::array();
  for (const SizeCount& one : counts)
    list.push_back({one.size, one.count});
  return list;
}

json axes_of(const AxisPlan& plan) {
  json list = json::array();
  for (std::size_t axis = 0; axis < plan.size(); ++axis) {
    const SizeSums sums = plan.size_sums(axis);
    json entry = {
        {"axis", plan.rule(axis).name()}, {"actual", sums.actual}, {"padded", sums.padded}};
    if (plan.rule(axis).options().policy == AxisPolicy::kBuckets) {
      entry["buckets"] = plan.rule(axis).options().sizes;
    }
    entry["sizes"] = sizes_of(plan, axis);
    list.push_back(std::move(entry));
  }
  return list;
}

json inputs_of(const Node& node) {
  json list = json::array();
  for (std::size_t i = 0; i < node.recording.inputs.size(); ++i) {
    const InputRecord& input = node.recording.inputs[i];
    json entry = type_of(input.dtype, input.shape);
    entry["bytes"] = static_cast<std::size_t>(input.shape.elements()) * size_of(input.dtype);
    entry["treatment"] = name(input.treatment);
    const bool is_buffer = i >= node.recording.inputs.size() - node.recording.buffers;
    entry["static"] = !is_buffer && node.function->input_options(i).is_static;
    entry["mutated"] = !is_buffer && node.function->input_options(i).is_mutated;
    entry["address"] = input.address;
    for (const RebindChoice& choice : node.recording.rebinds) {
      if (choice.input != i) continue;
      entry["rebind"] = {{"nodes", choice.nodes}, {"why_not", choice.why}};
    }
    list.push_back(std::move(entry));
  }
  return list;
}

json slot_of(const Slot& slot, const ContextMemory& memory) {
  const bool live = (slot.live_word->load() & slot.live_bit) != 0;
  json entry = {{"slot", slot.number},
                {"address", slot.range.address},
                {"bytes", slot.range.bytes},
                {"live", live}};
  if (live) {
    const Holder holder = slot.holder;
    entry["holds"] = {{"function", memory.function_name(holder.function)},
                      {"output", holder.output}};
  }
  return entry;
}

json outputs_of(const Recording& recording, const ContextMemory& memory) {
  json list = json::array();
  for (const OutputRecord& output : recording.outputs) {
    json entry = type_of(output.dtype, output.shape);
    entry["kind"] = text_of(output.kind);
    if (output.kind == OutputRecord::Kind::kSlot) entry.update(slot_of(*output.slot, memory));
    if (output.kind == OutputRecord::Kind::kSame || output.kind == OutputRecord::Kind::kInput) {
      entry["index"] = output.index;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

json kept_of(const Recording& recording) {
  json list = json::array();
  for (const StorageRef& storage : recording.kept.storages()) {
    list.push_back({{"device", to_string(storage->device())},
                    {"address", storage->address()},
                    {"bytes", storage->bytes()}});
  }
  return list;
}

json audit_of(const Audit& audit) {
  std::vector<std::size_t> words(audit.memory.size());
  for (const MemoryUse& use : audit.uses)
    ++words[use.memory];
  json memory = json::array();
  for (std::size_t i = 0; i < audit.memory.size(); ++i) {
    const UsedMemory& used = audit.memory[i];
    json entry = {{"owner", name(used.owner)},
                  {"address", used.range.address},
                  {"bytes", used.range.bytes},
                  {"words", words[i]}};
    if (used.owner == MemoryOwner::kInput || used.owner == MemoryOwner::kOutput) {
      entry["number"] = used.number;
    }
    if (!used.text.empty()) entry["text"] = used.text;
    memory.push_back(std::move(entry));
  }
  json foreign = json::array();
  for (const ForeignPointer& pointer : audit.foreign) {
    const UsedMemory& used = audit.memory[pointer.memory];
    foreign.push_back({{"kernel", pointer.kernel},
                       {"place", pointer.place},
                       {"address", pointer.address},
                       {"memory_address", used.range.address},
                       {"memory_bytes", used.range.bytes},
                       {"nodes", pointer.nodes},
                       {"what", to_string(pointer, audit)}});
  }
  json unseen = json::array();
  for (const UnseenNodes& nodes : audit.unseen)
    unseen.push_back({{"what", nodes.what}, {"nodes", nodes.nodes}});
  return {{"memory", std::move(memory)},
          {"foreign", std::move(foreign)},
          {"unseen", std::move(unseen)}};
}

json node_of(const Node& node, const ContextMemory& memory) {
  json followers = json::array();
  for (const auto* const hints : {&node.followed_by, &node.held_back}) {
    for (const Node::Hint& hint : *hints)
      followers.push_back(hint.node->id);
  }
  const Recording& recording = node.recording;
  return {{"id", node.id},
          {"parent", node.parent},
          {"function", node.function->name},
          {"function_id", node.function->id},
          {"signature", node.key->signature.to_string()},
          {"cause", cause_json(node.why)},
          {"followed_by", std::move(followers)},
          {"graph_nodes", recording.costs.nodes},
          {"kernel_nodes", recording.costs.kernels},
          {"estimated_graph_bytes", recording.costs.graph_bytes()},
          {"record_us", recording.costs.record_us},
          {"audit_us", recording.costs.audit_us},
          {"replays", recording.costs.replays.get()},
          {"root_patches", recording.costs.patches.get()},
          {"verified_replays", recording.costs.verified.get()},
          {"unverified_replays", recording.costs.unverified.get()},
          {"footprint_bytes", recording.footprint.bytes()},
          {"inputs", inputs_of(node)},
          {"outputs", outputs_of(recording, memory)},
          {"kept", kept_of(recording)},
          {"audit", audit_of(recording.audit)}};
}

json function_of(const FunctionState& function, const FunctionStats& stats) {
  json skips = json::object();
  for (int i = 0; i < kSkipReasonCount; ++i) {
    if (stats.skips[i] > 0) {
      skips[std::string(name(static_cast<SkipReason>(i)))] = stats.skips[i];
    }
  }
  json unverified = json::object();
  for (int i = 0; i < kUnverifiedReasonCount; ++i) {
    if (stats.unverified[i] > 0) {
      unverified[std::string(name(static_cast<UnverifiedReason>(i)))] = stats.unverified[i];
    }
  }
  json entry = {{"id", function.id},
                {"name", function.name},
                {"calls", stats.calls},
                {"warm_ups", stats.warm_ups},
                {"recordings", stats.recordings},
                {"replays", stats.replays},
                {"failures", stats.failures},
                {"evictions", stats.evictions},
                {"kept_recordings", stats.kept_recordings},
                {"frozen", stats.frozen > 0},
                {"skips", std::move(skips)}};
  if (stats.verified > 0 || !unverified.empty()) {
    json tensors = json::array();
    for (const VerifiedTensor& tensor : function.verified_tensors) {
      tensors.push_back({{"what", tensor.what},
                         {"tolerance", tensor.tolerance},
                         {"largest_difference", tensor.largest}});
    }
    entry["verification"] = {{"verified", stats.verified},
                             {"differed", stats.differed},
                             {"left_out", std::move(unverified)},
                             {"compared", std::move(tensors)}};
  }
  if (function.axes != nullptr) entry["axes"] = axes_of(*function.axes);
  if (!function.capture_failure.empty()) entry["capture_failure"] = function.capture_failure;
  return entry;
}

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

}  // namespace

std::string snapshot_json(const Tree& tree, const ContextMemory& memory,
                          const ContextOptions& options) {
  const std::uint32_t current = tree.current_id();
  json functions = json::array();
  json nodes = json::array();
  tree.visit(
      [&](const FunctionState& function) {
        functions.push_back(function_of(function, tree.stats_of(function)));
      },
      [&](const Node& node) { nodes.push_back(node_of(node, memory)); });
  drop_unknown_ids(nodes);
  const bool has_current =
      std::ranges::any_of(nodes, [&](const json& node) { return node["id"] == current; });
  json pools = json::object();
  for (const Region region : {Region::kOutput, Region::kScratch, Region::kEager}) {
    const Pool& pool = memory.pool(region);
    pools[pool.options().name] = json::parse(to_json(pool.statistics()));
  }
  const json snapshot = {
      {"schema", "cgtree.snapshot"},
      {"version", kVersion},
      {"context", options.name.empty() ? to_string(memory.device()) : options.name},
      {"device", to_string(memory.device())},
      {"generation", memory.generation()},
      {"restores", memory.restores()},
      {"live_outputs", memory.live_outputs()},
      {"live_bytes", memory.live_bytes()},
      {"reserved_bytes", memory.reserved_bytes()},
      {"max_recordings", options.max_recordings},
      {"verify_every", options.verify_every},
      {"current", has_current ? current : 0},
      {"functions", std::move(functions)},
      {"nodes", std::move(nodes)},
      {"pools", std::move(pools)}};
  // Names are the caller's, and may not be UTF-8.
  return snapshot.dump(1, ' ', false, json::error_handler_t::replace);
}

}  // namespace cgtree
