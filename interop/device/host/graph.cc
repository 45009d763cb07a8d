// Builds, copies and checks a DAG of work.
#include "interop/device/host/graph.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cgtree::host {
namespace {

constexpr std::uintptr_t kIndexMask = 0xffff'ffffu;
static_assert(sizeof(std::uintptr_t) == 8, "a node's handle holds a graph's number and an index");

}  // namespace

Graph::Graph(GraphHandle handle, const Graph& original)
    : handle_(handle),
      original_(original.handle_),
      cloned_(original.nodes_.size()),
      nodes_(original.nodes_),
      order_(original.order_) {
  for (Node& node : nodes_) {
    for (NodeHandle& dependency : node.dependencies)
      dependency = node_handle(index_of(dependency));
  }
}

GraphHandle Graph::graph_of(NodeHandle node) noexcept {
  return static_cast<GraphHandle>(static_cast<std::uintptr_t>(node) & ~kIndexMask);
}

std::size_t Graph::index_of(NodeHandle node) noexcept {
  return (static_cast<std::uintptr_t>(node) & kIndexMask) - 1;
}

NodeHandle Graph::node_handle(std::size_t index) const noexcept {
  return static_cast<NodeHandle>(static_cast<std::uintptr_t>(handle_) + 1 + index);
}

const Node* Graph::find(NodeHandle node) const noexcept {
  if (graph_of(node) != handle_ || index_of(node) >= nodes_.size()) return nullptr;
  return &nodes_[index_of(node)];
}

NodeHandle Graph::copy_of(NodeHandle original) const noexcept {
  const bool is_copied = graph_of(original) == original_ && index_of(original) < cloned_;
  return is_copied ? node_handle(index_of(original)) : NodeHandle::kNull;
}

std::vector<GraphEdge> Graph::edges() const {
  std::vector<GraphEdge> edges;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    for (const NodeHandle dependency : nodes_[i].dependencies)
      edges.push_back({dependency, node_handle(i)});
  }
  return edges;
}

NodeHandle Graph::add(Work work, std::span<const NodeHandle> dependencies) {
  CGTREE_CHECK(nodes_.size() < kIndexMask);
  nodes_.push_back({std::move(work), {dependencies.begin(), dependencies.end()}});
  for (const NodeHandle dependency : dependencies)
    nodes_[index_of(dependency)].has_dependents = true;
  order_.push_back(nodes_.size() - 1);
  return node_handle(nodes_.size() - 1);
}

NodeHandle Graph::add_root(Work work) {
  CGTREE_CHECK(nodes_.size() < kIndexMask);
  const NodeHandle root = node_handle(nodes_.size());
  order_.insert(order_.begin(), nodes_.size());
  for (Node& node : nodes_) {
    if (node.dependencies.empty()) node.dependencies.push_back(root);
  }
  nodes_.push_back({std::move(work), {}, /*has_dependents=*/!nodes_.empty()});
  return root;
}

NodeHandle Graph::add_leaf(Work work) {
  std::vector<NodeHandle> leaves;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].has_dependents) leaves.push_back(node_handle(i));
  }
  return add(std::move(work), leaves);
}

bool Graph::all_lead_to(std::span<const NodeHandle> tails) const {
  // In a finite DAG it is enough to ask the nodes that nothing depends on.
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].has_dependents) continue;
    if (std::find(tails.begin(), tails.end(), node_handle(i)) == tails.end()) return false;
  }
  return true;
}

}  // namespace cgtree::host
