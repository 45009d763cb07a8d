// Graph and Exec: a DAG of work, and what instantiating it makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "interop/code.h"
#include "interop/handles.h"
#include "interop/host/work.h"

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

// A copy of a graph's work, ready to run; independent of the graph.
//
// Threads: any; runs and patches are serialised, as CUDA runs one launch of an exec at a time.
class Exec {
 public:
  explicit Exec(const Graph& graph);

  GraphHandle source() const noexcept { return source_; }
  // Whether node `index` of the source was there when this was made.
  bool has(std::size_t index) const noexcept { return index < steps_.size(); }
  // Takes no memory. Stops at the first failure and answers it.
  Code run();
  void set_kernel(std::size_t index, const KernelFunction& kernel, const LaunchDims& dims,
                  KernelArguments arguments);

 private:
  const GraphHandle source_;
  std::mutex running_;
  std::vector<Work> steps_;  // steps_[i] is node i of the source
  const std::vector<std::size_t> order_;
};

}  // namespace cgtree::host
