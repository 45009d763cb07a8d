// Graph: a DAG of work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "interop/device/graph_api.h"
#include "interop/device/host/work.h"

namespace cgtree::host {

struct Node {
  Work work;
  std::vector<NodeHandle> dependencies;
  bool has_dependents = false;
};

// Nodes are added behind those they depend on, or in front of all others. Invariants:
//   order() is a topological order: roots added in front, the last first; then the order of
//   creation handle of node i == handle of the graph + 1 + i, where the low 32 bits of a graph's
//   handle are 0; so a node needs no table of its own
class Graph {
 public:
  explicit Graph(GraphHandle handle) noexcept : handle_(handle) {}

  static GraphHandle graph_of(NodeHandle node) noexcept;
  static std::size_t index_of(NodeHandle node) noexcept;

  GraphHandle handle() const noexcept { return handle_; }
  std::span<const Node> nodes() const noexcept { return nodes_; }
  NodeHandle node_handle(std::size_t index) const noexcept;
  // Null if the graph has no such node.
  const Node* find(NodeHandle node) const noexcept;
  // From each node to those that depend on it, in the order of the latter.
  std::vector<GraphEdge> edges() const;

  // Numbers of the nodes, each after those it depends on.
  const std::vector<std::size_t>& order() const noexcept { return order_; }

  NodeHandle add(Work work, std::span<const NodeHandle> dependencies);
  // Every node that depended on none depends on this one from now on.
  NodeHandle add_root(Work work);
  // Depends on every node that none depended on.
  NodeHandle add_leaf(Work work);
  // Whether every node is one of `tails` or comes before one of them.
  bool all_lead_to(std::span<const NodeHandle> tails) const;

 private:
  const GraphHandle handle_;
  std::vector<Node> nodes_;
  std::vector<std::size_t> order_;
};

// A node a line: its number, what it does, and to which addresses; then an edge a line. A child
// graph is a cluster.
std::string to_dot(const Graph& graph);

// "kernel axpy", "copy of 64 bytes", ...
std::string describe(const Work& work);

}  // namespace cgtree::host
