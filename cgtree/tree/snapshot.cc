// The tree as JSON.
#include <nlohmann/json.hpp>

#include "cgtree/tree/busy.h"
#include "cgtree/tree/tree_manager.h"

namespace cgtree {
namespace {

using nlohmann::json;

std::string_view text_of(Treatment treatment) {
  switch (treatment) {
    case Treatment::kStatic:
      return "static";
    case Treatment::kManaged:
      return "managed";
    case Treatment::kCopied:
      return "copied";
  }
  return "unknown";
}

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

json inputs_of(const Recording& recording) {
  json list = json::array();
  for (const InputRecord& input : recording.inputs) {
    list.push_back({{"dtype", name(input.dtype)},
                    {"shape", to_string(input.shape)},
                    {"treatment", text_of(input.treatment)},
                    {"address", input.address}});
  }
  return list;
}

json outputs_of(const Recording& recording) {
  json list = json::array();
  for (const OutputRecord& output : recording.outputs) {
    json entry = {{"dtype", name(output.dtype)},
                  {"shape", to_string(output.shape)},
                  {"kind", text_of(output.kind)}};
    if (output.slot != nullptr) {
      entry["address"] = output.slot->range.address;
      entry["bytes"] = output.slot->range.bytes;
      entry["slot"] = output.slot->number;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

json node_of(const Node& node) {
  json followers = json::array();
  for (const Node::Edge& edge : node.edges)
    followers.push_back(edge.node->id);
  const Recording& recording = node.recording;
  return {{"id", node.id},
          {"parent", node.parent->id},
          {"function", node.function->name},
          {"signature", node.key->signature.to_string()},
          {"followed_by", std::move(followers)},
          {"graph_nodes", recording.costs.nodes},
          {"record_us", recording.costs.record_us},
          {"replays", recording.costs.replays},
          {"root_patches", recording.costs.patches},
          {"footprint_bytes", recording.footprint.bytes()},
          {"inputs", inputs_of(recording)},
          {"outputs", outputs_of(recording)}};
}

json counts_of(const FunctionStats& stats) {
  json skips = json::object();
  for (int i = 0; i < kSkipReasonCount; ++i) {
    if (stats.skips[i] > 0) {
      skips[std::string(name(static_cast<SkipReason>(i)))] = stats.skips[i];
    }
  }
  return {{"calls", stats.calls},           {"warm_ups", stats.warm_ups},
          {"recordings", stats.recordings}, {"replays", stats.replays},
          {"failures", stats.failures},     {"skips", std::move(skips)}};
}

}  // namespace

std::string TreeManager::snapshot_json() {
  Busy busy(*this);
  json functions = json::array();
  for (const auto& function : functions_) {
    json entry = counts_of(function->stats);
    entry["id"] = function->id;
    entry["name"] = function->name;
    functions.push_back(std::move(entry));
  }
  json nodes = json::array();
  for (const auto& node : nodes_)
    nodes.push_back(node_of(*node));
  json pools = json::object();
  for (const Region region : {Region::kRetained, Region::kTransient, Region::kEager}) {
    Pool& pool = memory_->pool(region);
    pools[pool.options().name] = json::parse(to_json(pool.statistics()));
  }
  const json snapshot = {{"device", to_string(memory_->device())},
                         {"generation", memory_->generation()},
                         {"restores", memory_->restores()},
                         {"live_outputs", memory_->live_outputs()},
                         {"current", current_->id},
                         {"functions", std::move(functions)},
                         {"nodes", std::move(nodes)},
                         {"pools", std::move(pools)}};
  return snapshot.dump(1);
}

}  // namespace cgtree
