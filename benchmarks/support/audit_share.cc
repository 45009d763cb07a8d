// Reads snapshots, and nodes.
#include "benchmarks/support/audit_share.h"

#include <map>
#include <vector>

#include "interop/device/graph_api.h"
#include "interop/device/node_contents.h"

namespace cgtree::benchmarks {
namespace {

using Json = nlohmann::ordered_json;

// Returns [{"what": text, "nodes": count}], with one entry for each text.
Json list_of(const std::map<std::string, std::size_t>& counts) {
  Json list = Json::array();
  for (const auto& [what, nodes] : counts)
    list.push_back({{"what", what}, {"nodes", nodes}});
  return list;
}

}  // namespace

Json audit_share(const std::string& snapshot) {
  const nlohmann::json tree = nlohmann::json::parse(snapshot);
  std::map<std::string, std::size_t> by_owner, foreign, unseen;
  std::size_t addresses = 0;
  for (const nlohmann::json& node : tree["nodes"]) {
    const nlohmann::json& audit = node["audit"];
    for (const nlohmann::json& memory : audit["memory"]) {
      const auto words = memory["words"].get<std::size_t>();
      by_owner[memory["owner"]] += words;
      addresses += words;
    }
    for (const nlohmann::json& pointer : audit["foreign"])
      foreign[pointer["what"]] += pointer["nodes"].get<std::size_t>();
    for (const nlohmann::json& nodes : audit["unseen"])
      unseen[nodes["what"]] += nodes["nodes"].get<std::size_t>();
  }
  Json share = {{"recordings", tree["nodes"].size()}, {"addresses", addresses}};
  share["by_owner"] = Json(by_owner);
  share["attributed"] = nullptr;
  if (addresses > 0) {
    const std::size_t others = by_owner.contains("foreign") ? by_owner["foreign"] : 0;
    share["attributed"] = 1 - static_cast<double>(others) / static_cast<double>(addresses);
  }
  share["foreign"] = list_of(foreign);
  share["unseen"] = list_of(unseen);
  return share;
}

void ScannedWords::add(GraphAPI& graphs, std::span<const GraphHandle> captured) {
  for (const GraphHandle graph : captured) {
    std::vector<NodeContents> read;
    check(graphs.read_nodes(graph, &read), "read the nodes of a graph");
    for (const NodeContents& contents : read) {
      ++nodes;
      if (!contents.is_decoded) ++undecoded;
      if (contents.type != NodeType::kKernel) continue;
      ++kernels;
      for (const KernelParameter& parameter : contents.parameters()) {
        const std::size_t first = (parameter.offset + 7) / 8;
        const std::size_t end = (parameter.offset + parameter.bytes) / 8;
        if (end > first) words += end - first;
      }
    }
  }
}

void add_to(Json& row, const ScannedWords& scanned) {
  row["nodes"] = scanned.nodes;
  row["kernels"] = scanned.kernels;
  row["words"] = scanned.words;
  row["undecoded"] = scanned.undecoded;
}

}  // namespace cgtree::benchmarks
