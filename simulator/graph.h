// Graph and Exec: a DAG of work, with its text in the language of Graphviz; and its executable
// form, a copy.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "interop/device/code.h"
#include "interop/device/condition.h"
#include "interop/device/graph_api.h"
#include "simulator/work.h"
#include "simulator/work_queue.h"

namespace cgtree::host {

// A HostCondition is set by kernels and read by a conditional node. Its value comes first: its
// address is the handle.
struct HostCondition {
  std::atomic<std::uint32_t> value{0};
  bool is_taken = false;  // true if a node has it

  ConditionHandle handle() const noexcept {
    return static_cast<ConditionHandle>(reinterpret_cast<std::uintptr_t>(&value));
  }
};

struct Node {
  Work work;
  std::vector<NodeHandle> dependencies;
  bool has_dependents = false;
  bool is_enabled = true;  // if false, launches skip it
};

// A Graph is a DAG of nodes. Nodes are added after their dependencies, or before all others.
//
// Invariants:
//   order() is topological: the roots added in front, the last one first; then the others in the
//   order of creation.
//   The handle of node i is the handle of the graph + 1 + i. The low 32 bits of a graph's handle
//   are 0, so that a node needs no table.
class Graph {
 public:
  explicit Graph(GraphHandle handle) noexcept : handle_(handle) {}

  static GraphHandle graph_of(NodeHandle node) noexcept;
  static std::size_t index_of(NodeHandle node) noexcept;

  GraphHandle handle() const noexcept { return handle_; }
  std::span<const Node> nodes() const noexcept { return nodes_; }
  NodeHandle node_handle(std::size_t index) const noexcept;
  // Returns null if the graph has no such node.
  const Node* find(NodeHandle node) const noexcept;
  // Returns the edges, in the order of the dependent nodes.
  std::vector<GraphEdge> edges() const;

  // Returns the numbers of the nodes, each after its dependencies.
  const std::vector<std::size_t>& order() const noexcept { return order_; }

  NodeHandle add(Work work, std::span<const NodeHandle> dependencies);
  // Adds a node before all nodes: those without dependencies depend on it from now on.
  NodeHandle add_root(Work work);
  // Adds a node that depends on every node without dependents.
  NodeHandle add_leaf(Work work);
  std::shared_ptr<HostCondition> add_condition();
  // Returns null for a condition of another graph.
  std::shared_ptr<HostCondition> find_condition(ConditionHandle handle) const;
  // Returns the memory that a node has allocated at `data`, unless a node has freed it; else null.
  std::shared_ptr<OrderedMemory> find_allocation(const void* data) const;
  // Returns whether the graph may be instantiated: no body has a host function or an allocation,
  // and none is lost.
  bool is_executable() const;
  bool has_conditionals() const;
  bool has_memory_nodes() const;
  // Notes that a capture to this body failed, which destroys the graph.
  void lose() noexcept { is_lost_ = true; }
  bool is_lost() const noexcept { return is_lost_; }
  // Adds a node after all of `after` and before all of `before`. Returns nothing if a node is of
  // another graph, or if one of `before` precedes one of `after` in order().
  std::optional<NodeHandle> insert(Work work, std::span<const NodeHandle> after,
                                   std::span<const NodeHandle> before);
  // Returns whether every node is one of `tails` or precedes one of them.
  bool all_lead_to(std::span<const NodeHandle> tails) const;

  // Returns a copy with copies of its bodies, independent of changes of this graph.
  std::shared_ptr<Graph> copy() const;
  // Runs all work, in order(). Does not allocate. Stops at the first failure and returns it.
  Code run() const;
  // Requires: find(node) is not null.
  Work& work_of(NodeHandle node) noexcept { return nodes_[index_of(node)].work; }
  void enable(NodeHandle node, bool is_enabled) noexcept {
    nodes_[index_of(node)].is_enabled = is_enabled;
  }

 private:
  const GraphHandle handle_;
  std::vector<Node> nodes_;
  std::vector<std::size_t> order_;
  std::vector<std::shared_ptr<HostCondition>> conditions_;
  bool is_lost_ = false;
};

// Returns whether the graphs differ only in data of a NodePatch.
bool are_alike(const Graph& a, const Graph& b);

// Returns one line per node, with its number, its work and the addresses; then one line per edge.
std::string to_dot(const Graph& graph);

// An Exec is a copy of a graph, ready to run and independent of the graph.
//
// Thread safety: any thread; runs and changes are serialised, as CUDA runs one launch of an exec at
// a time.
class Exec {
 public:
  // A MemoryStep is memory that a node allocates or frees.
  struct MemoryStep {
    std::shared_ptr<OrderedMemory> memory;
    bool is_free;
  };

  Exec(const Graph& graph, bool frees_on_launch);

  GraphHandle source() const noexcept { return source_; }
  // Returns the allocations and frees of a launch, in order.
  const std::vector<MemoryStep>& memory_steps() const noexcept { return memory_steps_; }
  // Returns true if each launch frees the memory of the previous launch.
  bool frees_on_launch() const noexcept { return frees_on_launch_; }
  // Returns null for a node of another graph, or a later one.
  const Work* find(NodeHandle node) const noexcept;

  // Does not allocate.
  Code run();
  // Returns the graph for a launch that runs later. Its arguments stay when nodes are changed.
  std::shared_ptr<const Graph> share();

  // Requires: find(node) is a kernel.
  void set_kernel(NodeHandle node, const KernelFunction& kernel, const LaunchDims& dims,
                  KernelArguments arguments);
  // Requires: the patch has patchable_bytes() of the node.
  void set_node(const NodePatch& patch);
  // Requires: find(node) is not null.
  void enable(NodeHandle node, bool is_enabled);

  // The last queued launch; guarded by the runtime's mutex.
  OperationPtr last;

 private:
  // Returns the graph for a change; copies it first if it is shared with a launch.
  Graph& own();

  const GraphHandle source_;
  const bool frees_on_launch_;
  std::vector<MemoryStep> memory_steps_;
  std::mutex running_;
  std::shared_ptr<Graph> graph_;
  bool is_shared_ = false;
};

}  // namespace cgtree::host
