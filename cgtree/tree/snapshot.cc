// Writes snapshots; docs/snapshot.md describes them, and changes with kVersion.
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

json inputs_of(const Node& node) {
  json list = json::array();
  for (std::size_t i = 0; i < node.recording.inputs.size(); ++i) {
    const InputRecord& input = node.recording.inputs[i];
    json entry = type_of(input.dtype, input.shape);
    entry["treatment"] = name(input.treatment);
    const bool is_buffer = i >= node.recording.inputs.size() - node.recording.buffers;
    entry["static"] = !is_buffer && node.function->input_options(i).is_static;
    entry["mutated"] = !is_buffer && node.function->input_options(i).is_mutated;
    entry["address"] = input.address;
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
    const StorageTag& tag = slot.current->tag;
    entry["holds"] = {{"function", memory.function_name(tag.function)}, {"output", tag.position}};
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

std::size_t kernel_nodes(const Recording& recording) {
  GraphAPI& api = recording.exec.api();
  std::vector<NodeHandle> nodes;
  check(api.graph_nodes(recording.graph.handle(), &nodes), "list the nodes of a graph");
  std::size_t count = 0;
  for (const NodeHandle node : nodes) {
    NodeType type = NodeType::kOther;
    check(api.node_type(node, &type), "ask for the type of a node");
    count += type == NodeType::kKernel;
  }
  return count;
}

json node_of(const Node& node, const ContextMemory& memory) {
  json followers = json::array();
  for (const Node::Hint& hint : node.followed_by)
    followers.push_back(hint.node->id);
  const Recording& recording = node.recording;
  const std::size_t kernels = kernel_nodes(recording);
  return {{"id", node.id},
          {"parent", node.parent},
          {"function", node.function->name},
          {"function_id", node.function->id},
          {"signature", node.key->signature.to_string()},
          {"cause", cause_json(node.why)},
          {"followed_by", std::move(followers)},
          {"graph_nodes", recording.costs.nodes},
          {"kernel_nodes", kernels},
          {"estimated_graph_bytes", recording.costs.graph_bytes()},
          {"record_us", recording.costs.record_us},
          {"replays", recording.costs.replays},
          {"root_patches", recording.costs.patches},
          {"footprint_bytes", recording.footprint.bytes()},
          {"inputs", inputs_of(node)},
          {"outputs", outputs_of(recording, memory)}};
}

json function_of(const FunctionState& function) {
  const FunctionStats& stats = function.stats;
  json skips = json::object();
  for (int i = 0; i < kSkipReasonCount; ++i) {
    if (stats.skips[i] > 0) {
      skips[std::string(name(static_cast<SkipReason>(i)))] = stats.skips[i];
    }
  }
  json entry = {
      {"id", function.id},          {"name", function.name},          {"calls", stats.calls},
      {"warm_ups", stats.warm_ups}, {"recordings", stats.recordings}, {"replays", stats.replays},
      {"failures", stats.failures}, {"skips", std::move(skips)}};
  if (!function.capture_failure.empty()) entry["capture_failure"] = function.capture_failure;
  return entry;
}

}  // namespace

std::string snapshot_json(const Tree& tree, ContextMemory& memory, const ContextOptions& options) {
  json functions = json::array();
  for (const auto& function : tree.functions())
    functions.push_back(function_of(*function));
  json nodes = json::array();
  for (const auto& node : tree.nodes())
    nodes.push_back(node_of(*node, memory));
  json pools = json::object();
  for (const Region region : {Region::kOutput, Region::kScratch, Region::kEager}) {
    Pool& pool = memory.pool(region);
    pools[pool.options().name] = json::parse(to_json(pool.statistics()));
  }
  const json snapshot = {{"schema", "cgtree.snapshot"},
                         {"version", kVersion},
                         {"device", to_string(memory.device())},
                         {"generation", memory.generation()},
                         {"restores", memory.restores()},
                         {"live_outputs", memory.live_outputs()},
                         {"live_bytes", memory.live_bytes()},
                         {"reserved_bytes", memory.reserved_bytes()},
                         {"max_recordings", options.max_recordings},
                         {"current", tree.current().id},
                         {"functions", std::move(functions)},
                         {"nodes", std::move(nodes)},
                         {"pools", std::move(pools)}};
  // Names are the caller's, and may not be UTF-8.
  return snapshot.dump(1, ' ', false, json::error_handler_t::replace);
}

}  // namespace cgtree
