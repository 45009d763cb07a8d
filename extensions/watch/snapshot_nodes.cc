// Writes the recordings of a snapshot: costs, inputs, outputs, memory and audit.
#include <nlohmann/json.hpp>

#include "extensions/audit/audit.h"
#include "extensions/watch/event_record.h"
#include "extensions/watch/snapshot.h"

namespace cgtree {
namespace {

using json = nlohmann::ordered_json;

// In the order of OutputRecord::Kind and of NodeType.
constexpr std::string_view kOutputKinds[] = {"slot", "same_as_output", "input", "constant",
                                             "copied"};
constexpr std::string_view kNodeTypes[] = {"kernel", "copy",        "memset",     "host", "empty",
                                           "other",  "child_graph", "allocation", "free"};

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

json outputs_of(const Recording& recording, const ContextMemory& memory) {
  json list = json::array();
  for (const OutputRecord& output : recording.outputs) {
    json entry = type_of(output.dtype, output.shape);
    entry["kind"] = kOutputKinds[static_cast<std::size_t>(output.kind)];
    if (output.kind == OutputRecord::Kind::kSlot) {
      const Slot& slot = *output.slot;
      entry.update(slot_json(slot.number, slot.range, memory.is_live(slot), slot.holder, memory));
    }
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

json audit_json(const Audit& audit) {
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

// Columns, because a graph may have thousands of nodes.
json scopes_json(const NodeScopes& scopes) {
  json kernels = json::array();
  for (const std::string& kernel : scopes.kernels)
    kernels.push_back(demangled(kernel));
  json types = json::array();
  json kernel_of = json::array();
  json path_of = json::array();
  json ids = json::array();
  json exec_ids = json::array();
  for (const ScopedNode& node : scopes.nodes) {
    types.push_back(kNodeTypes[static_cast<std::size_t>(node.type)]);
    kernel_of.push_back(node.kernel);
    path_of.push_back(node.path);
    ids.push_back(node.ids.node);
    exec_ids.push_back(node.ids.clone);
  }
  return {{"paths", scopes.paths},
          {"kernels", std::move(kernels)},
          {"node_types", std::move(types)},
          {"node_kernels", std::move(kernel_of)},
          {"node_paths", std::move(path_of)},
          {"node_ids", std::move(ids)},
          {"exec_node_ids", std::move(exec_ids)}};
}

// Returns the sizes of dynamic axes that the step function saw, by name.
json padded_of(const Node& node) {
  json sizes = json::object();
  const AxisPlan* const axes = node.function->axes.get();
  for (std::size_t i = 0; axes != nullptr && i < axes->size(); ++i)
    sizes[axes->rule(i).name()] = node.key->padded[i];
  return sizes;
}

}  // namespace

json ranges_json(std::span<const Range> ranges) {
  json list = json::array();
  for (const Range& range : ranges)
    list.push_back({{"address", range.address}, {"bytes", range.bytes}});
  return list;
}

json slot_json(std::size_t number, Range range, bool is_live, const Holder& holder,
               const ContextMemory& memory) {
  json entry = {
      {"slot", number}, {"address", range.address}, {"bytes", range.bytes}, {"live", is_live}};
  if (is_live) {
    entry["holds"] = {{"function", memory.function_name(holder.function)},
                      {"output", holder.output}};
  }
  return entry;
}

json node_json(const Node& node, const ContextMemory& memory) {
  json followers = json::array();
  for (const Node::Hint& hint : node.followed_by)
    followers.push_back(hint.node->id);
  const Recording& recording = node.recording;
  const Audit& audit = audit_of(recording);
  json entry = {{"id", node.id},
                {"parent", node.parent},
                {"function", node.function->name},
                {"function_id", node.function->id},
                {"signature", node.key->signature.to_string()},
                {"reason", name(cause_of(node.why))},
                {"reason_text", explain(cause_of(node.why))},
                {"followed_by", std::move(followers)},
                {"graph_nodes", recording.costs.nodes},
                {"kernel_nodes", recording.costs.kernels},
                {"estimated_graph_bytes", recording.costs.graph_bytes},
                {"recorded_at_us", node.recorded_at_us},
                {"record_us", recording.costs.record_us},
                {"audit_us", recording.costs.audit_us},
                {"replays", recording.costs.replays.get()},
                {"root_patches", recording.costs.patches.get()},
                {"verified_replays", recording.costs.verified.get()},
                {"unverified_replays", recording.costs.unverified.get()},
                {"padded", padded_of(node)},
                {"footprint_bytes", recording.footprint.bytes()},
                {"footprint", ranges_json(recording.footprint.ranges())},
                {"inputs", inputs_of(node)},
                {"outputs", outputs_of(recording, memory)},
                {"kept", kept_of(recording)},
                {"audit", audit_json(audit)}};
  add_cause(entry, node.why);
  if (!audit.scopes.nodes.empty()) entry["scopes"] = scopes_json(audit.scopes);
  return entry;
}

}  // namespace cgtree
