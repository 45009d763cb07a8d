// Builds, checks and draws a DAG of work; runs and changes executable graphs.
#include "simulator/graph.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "interop/device/graph_api.h"
#include "simulator/memory.h"

namespace cgtree::host {
namespace {

constexpr std::uintptr_t kIndexMask = 0xffff'ffffu;
static_assert(sizeof(std::uintptr_t) == 8, "a node's handle holds a graph's number and an index");

}  // namespace

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

std::shared_ptr<HostCondition> Graph::add_condition() {
  return conditions_.emplace_back(std::make_shared<HostCondition>());
}

std::shared_ptr<HostCondition> Graph::find_condition(ConditionHandle handle) const {
  const auto found = std::ranges::find_if(
      conditions_, [&](const auto& condition) { return condition->handle() == handle; });
  return found == conditions_.end() ? nullptr : *found;
}

bool Graph::has_conditionals() const {
  return std::ranges::any_of(
      nodes_, [](const Node& node) { return std::holds_alternative<ConditionalWork>(node.work); });
}

bool Graph::has_memory_nodes() const {
  return std::ranges::any_of(nodes_, [](const Node& node) {
    return std::holds_alternative<AllocationWork>(node.work) ||
           std::holds_alternative<FreeWork>(node.work);
  });
}

std::shared_ptr<OrderedMemory> Graph::find_allocation(const void* data) const {
  std::shared_ptr<OrderedMemory> found;
  for (const Node& node : nodes_) {
    const auto* const made = std::get_if<AllocationWork>(&node.work);
    if (made != nullptr && made->memory->data == data) found = made->memory;
    const auto* const freed = std::get_if<FreeWork>(&node.work);
    if (freed != nullptr && freed->memory == found) found = nullptr;
  }
  return found;
}

// Source: cudaGraphInstantiate returns 1 for a body with a host function or cudaMallocAsync.
bool Graph::is_executable() const {
  return std::ranges::all_of(nodes_, [](const Node& node) {
    const auto* const conditional = std::get_if<ConditionalWork>(&node.work);
    if (conditional == nullptr) return true;
    return std::ranges::all_of(conditional->bodies, [](const auto& body) {
      const bool calls_back = std::ranges::any_of(body->nodes(), [](const Node& inner) {
        return std::holds_alternative<HostWork>(inner.work) ||
               std::holds_alternative<AllocationWork>(inner.work);
      });
      return !calls_back && !body->is_lost() && body->is_executable();
    });
  });
}

std::optional<NodeHandle> Graph::insert(Work work, std::span<const NodeHandle> after,
                                        std::span<const NodeHandle> before) {
  const auto is_unknown = [&](NodeHandle node) { return find(node) == nullptr; };
  if (std::ranges::any_of(after, is_unknown) || std::ranges::any_of(before, is_unknown)) {
    return std::nullopt;
  }
  const auto place_of = [&](NodeHandle node) {
    return std::ranges::find(order_, index_of(node)) - order_.begin();
  };
  std::ptrdiff_t last = std::ssize(order_);
  for (const NodeHandle node : before)
    last = std::min(last, place_of(node));
  std::ptrdiff_t place = after.empty() ? last : 0;
  for (const NodeHandle node : after)
    place = std::max(place, place_of(node) + 1);
  if (place > last) return std::nullopt;
  const NodeHandle made = add(std::move(work), after);
  order_.pop_back();
  order_.insert(order_.begin() + place, index_of(made));
  for (const NodeHandle node : before)
    nodes_[index_of(node)].dependencies.push_back(made);
  nodes_.back().has_dependents = !before.empty();
  return made;
}

bool Graph::all_lead_to(std::span<const NodeHandle> tails) const {
  // In a finite DAG it is enough to check the nodes without dependents.
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].has_dependents) continue;
    if (std::find(tails.begin(), tails.end(), node_handle(i)) == tails.end()) return false;
  }
  return true;
}

std::string to_dot(const Graph& graph) {
  std::string out = "digraph {\n  node [shape=box];\n";
  const auto nodes = graph.nodes();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    out += str_format("  \"{}\" [label=\"{}: {}\"];\n", i, i, describe(nodes[i].work));
  }
  for (const GraphEdge& edge : graph.edges()) {
    out +=
        str_format("  \"{}\" -> \"{}\";\n", Graph::index_of(edge.from), Graph::index_of(edge.to));
  }
  return out + "}\n";
}

std::shared_ptr<Graph> Graph::copy() const {
  auto made = std::make_shared<Graph>(*this);
  for (Node& node : made->nodes_) {
    auto* const conditional = std::get_if<ConditionalWork>(&node.work);
    if (conditional == nullptr) continue;
    for (std::shared_ptr<Graph>& body : conditional->bodies)
      body = body->copy();
  }
  return made;
}

Code Graph::run() const {
  for (const std::size_t index : order_) {
    if (!nodes_[index].is_enabled) continue;
    const Code code = host::run(nodes_[index].work);
    if (!ok(code)) return code;
  }
  return Code::kSuccess;
}

Exec::Exec(const Graph& graph, bool frees_on_launch)
    : source_(graph.handle()), frees_on_launch_(frees_on_launch), graph_(graph.copy()) {
  for (const std::size_t index : graph.order()) {
    const Work& work = graph.nodes()[index].work;
    if (const auto* const made = std::get_if<AllocationWork>(&work))
      memory_steps_.push_back({made->memory, /*is_free=*/false});
    if (const auto* const freed = std::get_if<FreeWork>(&work))
      memory_steps_.push_back({freed->memory, /*is_free=*/true});
  }
}

const Work* Exec::find(NodeHandle node) const noexcept {
  const Node* const found = graph_->find(node);
  return found == nullptr ? nullptr : &found->work;
}

Code Exec::run() {
  const std::lock_guard lock(running_);
  return graph_->run();
}

std::shared_ptr<const Graph> Exec::share() {
  const std::lock_guard lock(running_);
  is_shared_ = true;
  return graph_;
}

Graph& Exec::own() {
  if (is_shared_) graph_ = std::make_shared<Graph>(*graph_);
  is_shared_ = false;
  return *graph_;
}

void Exec::enable(NodeHandle node, bool is_enabled) {
  const std::lock_guard lock(running_);
  own().enable(node, is_enabled);
}

void Exec::set_kernel(NodeHandle node, const KernelFunction& kernel, const LaunchDims& dims,
                      KernelArguments arguments) {
  const std::lock_guard lock(running_);
  auto& work = std::get<KernelWork>(own().work_of(node));
  work.arguments.assign(arguments);
  work.function = kernel;
  work.dims = dims;
}

void Exec::set_node(const NodePatch& patch) {
  const std::lock_guard lock(running_);
  host::patch(own().work_of(patch.node), patch);
}

bool are_alike(const Graph& a, const Graph& b) {
  const auto number = [](NodeHandle node) { return Graph::index_of(node); };
  return std::ranges::equal(a.nodes(), b.nodes(), [&](const Node& one, const Node& other) {
    return are_alike(one.work, other.work) &&
           std::ranges::equal(one.dependencies, other.dependencies, {}, number, number);
  });
}

}  // namespace cgtree::host
