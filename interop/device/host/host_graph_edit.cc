// Graphs as a whole, and changes to executable ones.
#include <algorithm>
#include <fstream>

#include "interop/device/host/dot.h"
#include "interop/device/host/host_graphs.h"

namespace cgtree::host {

Code HostGraphs::create_graph(GraphHandle* graph) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto name = static_cast<GraphHandle>(runtime_.next_handle());
    runtime_.graphs.emplace(name, std::make_shared<Graph>(name));
    *graph = name;
    return Code::kSuccess;
  });
}

Code HostGraphs::clone_graph(GraphHandle graph, GraphHandle* clone) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto found = runtime_.graphs.find(graph);
    if (found == runtime_.graphs.end()) return Code::kInvalidValue;
    const auto name = static_cast<GraphHandle>(runtime_.next_handle());
    runtime_.graphs.emplace(name, std::make_shared<Graph>(name, *found->second));
    *clone = name;
    return Code::kSuccess;
  });
}

Code HostGraphs::find_in_clone(NodeHandle original, GraphHandle clone, NodeHandle* node) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto found = runtime_.graphs.find(clone);
    if (found == runtime_.graphs.end()) return Code::kInvalidValue;
    const NodeHandle copy = found->second->copy_of(original);
    if (copy == NodeHandle::kNull) return Code::kInvalidValue;
    *node = copy;
    return Code::kSuccess;
  });
}

Code HostGraphs::graph_edges(GraphHandle graph, std::vector<GraphEdge>* edges) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto found = runtime_.graphs.find(graph);
    if (found == runtime_.graphs.end()) return Code::kInvalidValue;
    *edges = found->second->edges();
    return Code::kSuccess;
  });
}

Code HostGraphs::add_child_graph(GraphHandle handle, std::span<const NodeHandle> dependencies,
                                 GraphHandle child, NodeHandle* node) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto graph = runtime_.graphs.find(handle);
    const auto original = runtime_.graphs.find(child);
    if (graph == runtime_.graphs.end() || original == runtime_.graphs.end()) {
      return Code::kInvalidValue;
    }
    const bool knows_all = std::all_of(
        dependencies.begin(), dependencies.end(),
        [&](NodeHandle dependency) { return graph->second->find(dependency) != nullptr; });
    if (!knows_all) return Code::kInvalidValue;
    const auto name = static_cast<GraphHandle>(runtime_.next_handle());
    *node = graph->second->add(ChildWork{std::make_shared<const Graph>(name, *original->second)},
                               dependencies);
    return Code::kSuccess;
  });
}

Code HostGraphs::write_dot(GraphHandle graph, const char* path) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto found = runtime_.graphs.find(graph);
    if (found == runtime_.graphs.end()) return Code::kInvalidValue;
    std::ofstream file(path);
    file << to_dot(*found->second);
    return file.flush() ? Code::kSuccess : Code::kInvalidValue;
  });
}

std::shared_ptr<Exec> HostGraphs::find_exec_with(ExecHandle exec, NodeHandle node) const {
  const auto found = runtime_.execs.find(exec);
  const auto graph = runtime_.graphs.find(Graph::graph_of(node));
  if (found == runtime_.execs.end() || graph == runtime_.graphs.end()) return nullptr;
  const bool has_it = graph->second->find(node) != nullptr && found->second->find(node) != nullptr;
  return has_it ? found->second : nullptr;
}

Code HostGraphs::set_kernel_node(ExecHandle handle, NodeHandle node, const KernelFunction& kernel,
                                 const LaunchDims& dims, KernelArguments arguments) {
  return runtime_.answer([&](const ThreadState&) {
    if (const Code code = check_launch(kernel, dims, arguments); !ok(code)) return code;
    std::shared_ptr<Exec> exec;
    {
      const std::lock_guard lock(runtime_.mutex);
      exec = find_exec_with(handle, node);
    }
    if (exec == nullptr || type_of(*exec->find(node)) != NodeType::kKernel) {
      return Code::kInvalidValue;
    }
    exec->set_kernel(node, kernel, dims, arguments);
    return Code::kSuccess;
  });
}

Code HostGraphs::update_exec(ExecHandle handle, GraphHandle graph, ExecUpdate* update) {
  return runtime_.answer([&](const ThreadState&) {
    std::shared_ptr<Exec> exec;
    std::shared_ptr<const Graph> source;
    {
      const std::lock_guard lock(runtime_.mutex);
      const auto found = runtime_.execs.find(handle);
      const auto other = runtime_.graphs.find(graph);
      if (found == runtime_.execs.end() || other == runtime_.graphs.end()) {
        return Code::kInvalidValue;
      }
      exec = found->second;
      source = other->second;
    }
    *update = exec->update(*source);
    return update->result == UpdateResult::kSuccess ? Code::kSuccess
                                                    : Code::kGraphExecUpdateFailure;
  });
}

Code HostGraphs::set_node_enabled(ExecHandle handle, NodeHandle node, bool is_enabled) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto exec = find_exec_with(handle, node);
    if (exec == nullptr || !can_be_disabled(*exec->find(node))) return Code::kInvalidValue;
    exec->set_enabled(node, is_enabled);
    return Code::kSuccess;
  });
}

Code HostGraphs::node_enabled(ExecHandle handle, NodeHandle node, bool* is_enabled) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto exec = find_exec_with(handle, node);
    if (exec == nullptr || !can_be_disabled(*exec->find(node))) return Code::kInvalidValue;
    *is_enabled = exec->is_enabled(node);
    return Code::kSuccess;
  });
}

}  // namespace cgtree::host
