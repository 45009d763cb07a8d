// Counts the memory of the nodes and branches of a graph.
#include "extensions/audit/node_bytes.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cgtree/record/graph_bytes.h"

namespace cgtree {
namespace {

std::size_t bytes_of(const NodeContents& node) noexcept {
  switch (node.type) {
    case NodeType::kMemset:
    case NodeType::kHost:
    case NodeType::kEmpty:
      return 0;
    default:
      if (node.bytes.size() > 2048) return kGraphBytesPerNodeAbove2KiB;
      return node.bytes.size() > 1024 ? kGraphBytesPerNodeAbove1KiB : kGraphBytesPerNode;
  }
}

// Returns the largest number of nodes at the same depth; the depth of a node is the length of the
// longest path from the roots.
std::size_t width_of(std::span<const NodeContents> nodes, std::span<const GraphEdge> edges) {
  std::vector<std::pair<NodeHandle, std::uint32_t>> numbers;
  numbers.reserve(nodes.size());
  for (const NodeContents& node : nodes)
    numbers.emplace_back(node.node, numbers.size());
  std::ranges::sort(numbers);
  const auto number_of = [&](NodeHandle node) {
    return std::ranges::lower_bound(numbers, node, {}, [](const auto& pair) { return pair.first; })
        ->second;
  };
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;  // by the first node
  pairs.reserve(edges.size());
  std::vector<std::uint32_t> unknown(nodes.size());  // dependencies whose depth is not known yet
  for (const GraphEdge& edge : edges) {
    pairs.emplace_back(number_of(edge.from), number_of(edge.to));
    ++unknown[pairs.back().second];
  }
  std::ranges::sort(pairs);
  std::vector<std::uint32_t> ready;
  for (std::uint32_t i = 0; i < nodes.size(); ++i)
    if (unknown[i] == 0) ready.push_back(i);
  std::vector<std::uint32_t> depths(nodes.size());
  std::vector<std::size_t> at_depth(nodes.size());
  while (!ready.empty()) {
    const std::uint32_t node = ready.back();
    ready.pop_back();
    ++at_depth[depths[node]];
    auto pair = std::ranges::lower_bound(pairs, std::pair(node, std::uint32_t{0}));
    for (; pair != pairs.end() && pair->first == node; ++pair) {
      const std::uint32_t next = pair->second;
      depths[next] = std::max(depths[next], depths[node] + 1);
      if (--unknown[next] == 0) ready.push_back(next);
    }
  }
  return at_depth.empty() ? 0 : std::ranges::max(at_depth);
}

}  // namespace

std::size_t estimate_graph_bytes(std::span<const NodeContents> nodes,
                                 std::span<const GraphEdge> edges) {
  std::size_t bytes = width_of(nodes, edges) * kGraphBytesPerBranch;
  for (const NodeContents& node : nodes)
    bytes += bytes_of(node);
  return bytes;
}

}  // namespace cgtree
