// Runs executable graphs, and changes them.
#include "interop/device/host/exec.h"

#include <algorithm>
#include <utility>

namespace cgtree::host {
namespace {

std::vector<std::size_t> numbers_of(std::span<const NodeHandle> nodes) {
  std::vector<std::size_t> numbers;
  numbers.reserve(nodes.size());
  for (const NodeHandle node : nodes)
    numbers.push_back(Graph::index_of(node));
  return numbers;
}

// What keeps `graph` from taking the place of `old`; nodes are paired in the order of creation.
// Source of the order of the checks: a driver named no node when the numbers differ.
ExecUpdate compare(const Program& old, const Graph& graph) {
  const auto nodes = graph.nodes();
  if (old.steps.size() != nodes.size()) return {UpdateResult::kTopologyChanged, NodeHandle::kNull};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const NodeHandle here = graph.node_handle(i);
    if (type_of(old.steps[i].work) != type_of(nodes[i].work)) {
      return {UpdateResult::kNodeTypeChanged, here};
    }
    std::vector<std::size_t> before = old.steps[i].after;
    std::vector<std::size_t> after = numbers_of(nodes[i].dependencies);
    std::sort(before.begin(), before.end());
    std::sort(after.begin(), after.end());
    if (before != after) return {UpdateResult::kTopologyChanged, here};
    if (const auto* child = std::get_if<ChildWork>(&nodes[i].work)) {
      const ExecUpdate inner = compare(*old.steps[i].child, *child->graph);
      if (inner.result != UpdateResult::kSuccess) return inner;
    }
  }
  return {};
}

}  // namespace

Program::Program(const Graph& graph) : source(graph.handle()), order(graph.order()) {
  steps.reserve(graph.nodes().size());
  for (const Node& node : graph.nodes()) {
    Step& step = steps.emplace_back(Step{node.work, numbers_of(node.dependencies), nullptr});
    if (const auto* child = std::get_if<ChildWork>(&node.work)) {
      step.child = std::make_shared<const Program>(*child->graph);
    }
  }
}

Code Program::run() const {
  for (const std::size_t index : order) {
    const Step& step = steps[index];
    if (!step.is_enabled) continue;
    const Code code = step.child != nullptr ? step.child->run() : host::run(step.work);
    if (!ok(code)) return code;
  }
  return Code::kSuccess;
}

Exec::Exec(const Graph& graph)
    : source_(graph.handle()), program_(std::make_shared<Program>(graph)) {
}

const Work* Exec::find(NodeHandle node) const noexcept {
  if (Graph::graph_of(node) != source_ || Graph::index_of(node) >= program_->steps.size()) {
    return nullptr;
  }
  return &program_->steps[Graph::index_of(node)].work;
}

Code Exec::run() {
  const std::lock_guard lock(running_);
  return program_->run();
}

std::shared_ptr<const Program> Exec::share() {
  const std::lock_guard lock(running_);
  is_shared_ = true;
  return program_;
}

Program& Exec::own() {
  if (is_shared_) program_ = std::make_shared<Program>(*program_);
  is_shared_ = false;
  return *program_;
}

void Exec::set_kernel(NodeHandle node, const KernelFunction& kernel, const LaunchDims& dims,
                      KernelArguments arguments) {
  const std::lock_guard lock(running_);
  auto& work = std::get<KernelWork>(own().steps[Graph::index_of(node)].work);
  work.arguments.assign(arguments);
  work.function = kernel;
  work.dims = dims;
}

void Exec::set_enabled(NodeHandle node, bool is_enabled) {
  const std::lock_guard lock(running_);
  own().steps[Graph::index_of(node)].is_enabled = is_enabled;
}

bool Exec::is_enabled(NodeHandle node) {
  const std::lock_guard lock(running_);
  return program_->steps[Graph::index_of(node)].is_enabled;
}

ExecUpdate Exec::update(const Graph& graph) {
  auto made = std::make_shared<Program>(graph);
  const std::lock_guard lock(running_);
  const ExecUpdate update = compare(*program_, graph);
  if (update.result != UpdateResult::kSuccess) return update;
  for (std::size_t i = 0; i < made->steps.size(); ++i)
    made->steps[i].is_enabled = program_->steps[i].is_enabled;
  program_ = std::move(made);
  is_shared_ = false;
  return update;
}

}  // namespace cgtree::host
