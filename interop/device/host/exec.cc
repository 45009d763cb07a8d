// Runs and changes executable graphs.
#include "interop/device/host/exec.h"

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

}  // namespace

Program::Program(const Graph& graph) : source(graph.handle()), order(graph.order()) {
  steps.reserve(graph.nodes().size());
  for (const Node& node : graph.nodes())
    steps.push_back({node.work, numbers_of(node.dependencies)});
}

Code Program::run() const {
  for (const std::size_t index : order) {
    const Step& step = steps[index];
    if (!step.is_enabled) continue;
    const Code code = host::run(step.work);
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

}  // namespace cgtree::host
