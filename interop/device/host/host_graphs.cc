// Captures and graphs: find the objects, ask the rules, do it.
#include "interop/device/host/host_graphs.h"

#include <utility>

namespace cgtree::host {
namespace {

bool is_mode(CaptureMode mode) {
  return mode == CaptureMode::kGlobal || mode == CaptureMode::kThreadLocal ||
         mode == CaptureMode::kRelaxed;
}

}  // namespace

Code HostGraphs::begin_capture(StreamHandle handle, CaptureMode mode) {
  return runtime_.answer([&](const ThreadState& thread) {
    if (!is_mode(mode)) return Code::kInvalidValue;
    const std::lock_guard lock(runtime_.mutex);
    const auto stream = runtime_.find_stream(handle);
    if (stream == nullptr) return Code::kInvalidResourceHandle;
    return runtime_.captures.begin(stream, mode, thread.caller(), runtime_.next_handle());
  });
}

Code HostGraphs::end_capture(StreamHandle handle, GraphHandle* graph) {
  return runtime_.answer([&](const ThreadState& thread) {
    const std::lock_guard lock(runtime_.mutex);
    const auto stream = runtime_.find_stream(handle);
    if (stream == nullptr) return Code::kInvalidResourceHandle;
    std::unique_ptr<Graph> captured;
    if (const Code code = runtime_.captures.end(*stream, thread.caller(), &captured); !ok(code)) {
      return code;
    }
    const GraphHandle name = captured->handle();
    runtime_.graphs.emplace(name, std::move(captured));
    *graph = name;
    return Code::kSuccess;
  });
}

Code HostGraphs::capture_info(StreamHandle handle, CaptureInfo* info) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto stream = runtime_.find_stream(handle);
    if (stream == nullptr) return Code::kInvalidResourceHandle;
    return runtime_.captures.info(*stream, info);
  });
}

Code HostGraphs::exchange_capture_mode(CaptureMode* mode) {
  return runtime_.answer([&](ThreadState& thread) {
    if (!is_mode(*mode)) return Code::kInvalidValue;
    std::swap(thread.mode, *mode);
    return Code::kSuccess;
  });
}

Code HostGraphs::destroy_graph(GraphHandle graph) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    return runtime_.graphs.erase(graph) == 1 ? Code::kSuccess : Code::kInvalidValue;
  });
}

Code HostGraphs::graph_nodes(GraphHandle graph, std::vector<NodeHandle>* nodes) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto found = runtime_.graphs.find(graph);
    if (found == runtime_.graphs.end()) return Code::kInvalidValue;
    std::vector<NodeHandle> answer(found->second->nodes().size());
    for (std::size_t i = 0; i < answer.size(); ++i)
      answer[i] = found->second->node_handle(i);
    *nodes = std::move(answer);
    return Code::kSuccess;
  });
}

Code HostGraphs::node_type(NodeHandle handle, NodeType* type) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const Graph* const graph = runtime_.find_graph_of(handle);
    const Node* const node = graph == nullptr ? nullptr : graph->find(handle);
    if (node == nullptr) return Code::kInvalidValue;
    *type = type_of(node->work);
    return Code::kSuccess;
  });
}

Code HostGraphs::node_dependencies(NodeHandle handle, std::vector<NodeHandle>* dependencies) {
  return runtime_.answer([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const Graph* const graph = runtime_.find_graph_of(handle);
    const Node* const node = graph == nullptr ? nullptr : graph->find(handle);
    if (node == nullptr) return Code::kInvalidValue;
    *dependencies = node->dependencies;
    return Code::kSuccess;
  });
}

Code HostGraphs::add_root_kernel(GraphHandle handle, const KernelFunction& kernel,
                                 const LaunchDims& dims, KernelArguments arguments,
                                 NodeHandle* node) {
  return runtime_.answer([&](const ThreadState&) {
    if (const Code code = check_launch(kernel, dims, arguments); !ok(code)) return code;
    const std::lock_guard lock(runtime_.mutex);
    const auto found = runtime_.graphs.find(handle);
    if (found == runtime_.graphs.end()) return Code::kInvalidValue;
    *node = found->second->add_root(KernelWork{kernel, dims, FrozenArguments(arguments)});
    return Code::kSuccess;
  });
}

Code HostGraphs::add_leaf_kernel(GraphHandle handle, const KernelFunction& kernel,
                                 const LaunchDims& dims, KernelArguments arguments,
                                 NodeHandle* node) {
  return runtime_.answer([&](const ThreadState&) {
    if (const Code code = check_launch(kernel, dims, arguments); !ok(code)) return code;
    const std::lock_guard lock(runtime_.mutex);
    const auto found = runtime_.graphs.find(handle);
    if (found == runtime_.graphs.end()) return Code::kInvalidValue;
    *node = found->second->add_leaf(KernelWork{kernel, dims, FrozenArguments(arguments)});
    return Code::kSuccess;
  });
}

Code HostGraphs::instantiate(GraphHandle handle, ExecHandle* exec) {
  return runtime_.answer([&](const ThreadState& thread) {
    std::shared_ptr<const Graph> graph;
    {
      const std::lock_guard lock(runtime_.mutex);
      const auto found = runtime_.graphs.find(handle);
      if (found == runtime_.graphs.end()) return Code::kInvalidValue;
      if (const Code code = runtime_.captures.admit_unsafe(thread.caller()); !ok(code)) return code;
      graph = found->second;
    }
    auto made = std::make_shared<Exec>(*graph);
    const std::lock_guard lock(runtime_.mutex);
    const auto name = static_cast<ExecHandle>(runtime_.next_handle());
    runtime_.execs.emplace(name, std::move(made));
    *exec = name;
    return Code::kSuccess;
  });
}

Code HostGraphs::destroy_exec(ExecHandle exec) {
  return runtime_.answer([&](const ThreadState& thread) {
    const std::lock_guard lock(runtime_.mutex);
    const auto found = runtime_.execs.find(exec);
    if (found == runtime_.execs.end()) return Code::kInvalidValue;
    // 900: destroying one is a potentially unsafe call, destroying a graph is not.
    if (const Code code = runtime_.captures.admit_unsafe(thread.caller()); !ok(code)) return code;
    runtime_.execs.erase(found);  // a launch that is running holds it until it is done
    return Code::kSuccess;
  });
}

Code HostGraphs::launch(ExecHandle handle, StreamHandle stream_handle) {
  return runtime_.answer([&](const ThreadState&) {
    std::shared_ptr<HostStream> stream;
    std::shared_ptr<Exec> exec;
    {
      const std::lock_guard lock(runtime_.mutex);
      const auto found = runtime_.execs.find(handle);
      if (found == runtime_.execs.end()) return Code::kInvalidValue;
      stream = runtime_.find_stream(stream_handle);
      if (stream == nullptr) return Code::kInvalidResourceHandle;
      if (const Code code = runtime_.captures.admit_launch(*stream); !ok(code)) return code;
      exec = found->second;
    }
    if (runtime_.queue != nullptr) return runtime_.enqueue_launch(*stream, *exec);
    return runtime_.run_in_order(*stream, [&] { return exec->run(); });
  });
}

Code HostGraphs::peek_last_error() noexcept {
  return runtime_.this_thread().last_error;
}

Code HostGraphs::take_last_error() noexcept {
  return std::exchange(runtime_.this_thread().last_error, Code::kSuccess);
}

}  // namespace cgtree::host
