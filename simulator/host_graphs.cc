// Events, work, captures and graphs: each function finds the objects, checks the rules of capture,
// and does the work.
#include "simulator/host_graphs.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <utility>

#include "simulator/graph.h"

namespace cgtree::host {

Code HostGraphs::create_event(EventHandle* event) {
  return runtime_.call_that_may_block("create_event", [&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto name = runtime_.event_handles.take([&] { return runtime_.next_handle(); });
    runtime_.events.emplace(name, HostEvent{});
    *event = name;
    return Code::kSuccess;
  });
}

Code HostGraphs::destroy_event(EventHandle event) {
  return runtime_.call_that_may_block("destroy_event", [&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    if (runtime_.events.erase(event) != 1) return Code::kInvalidResourceHandle;
    runtime_.event_handles.give_back(event);
    return Code::kSuccess;
  });
}

Code HostGraphs::record_event(EventHandle handle, StreamHandle stream_handle) {
  return runtime_.call_that_may_block("record_event", [&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto event = runtime_.events.find(handle);
    const auto stream = runtime_.find_stream(stream_handle);
    if (event == runtime_.events.end() || stream == nullptr) return Code::kInvalidResourceHandle;
    if (const Code code = runtime_.captures.admit_work(*stream); !ok(code)) return code;
    runtime_.captures.record(*stream, event->second);
    // Without a queue, everything submitted so far has run.
    const bool is_queued = runtime_.queue != nullptr && stream->capture == nullptr;
    event->second.operation = is_queued ? runtime_.enqueue(*stream, nullptr) : nullptr;
    if (!is_queued && event->second.is_timed) event->second.time = HostTime::clock::now();
    return Code::kSuccess;
  });
}

Code HostGraphs::admit_wait(EventHandle handle, const ThreadState& thread,
                            OperationPtr* operation) {
  const std::lock_guard lock(runtime_.mutex);
  const auto event = runtime_.events.find(handle);
  if (event == runtime_.events.end()) return Code::kInvalidResourceHandle;
  *operation = event->second.operation;
  return runtime_.captures.admit_wait(event->second, thread.caller());
}

Code HostGraphs::query_event(EventHandle handle) {
  return runtime_.call([&](const ThreadState& thread) {
    OperationPtr operation;
    if (const Code code = admit_wait(handle, thread, &operation); !ok(code)) return code;
    if (operation == nullptr) return Code::kSuccess;
    runtime_.queue->nudge(WorkQueue::Nudge::kQueried);
    return runtime_.queue->is_done(operation) ? Code::kSuccess : Code::kNotReady;
  });
}

Code HostGraphs::synchronize_event(EventHandle handle) {
  return runtime_.call_that_may_block("synchronize_event", [&](const ThreadState& thread) {
    OperationPtr operation;
    const Code code = admit_wait(handle, thread, &operation);
    return ok(code) ? runtime_.synchronize(operation) : code;
  });
}

Code HostGraphs::wait_event(StreamHandle stream_handle, EventHandle handle) {
  return runtime_.call_that_may_block("wait_event", [&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto event = runtime_.events.find(handle);
    const auto stream = runtime_.find_stream(stream_handle);
    if (event == runtime_.events.end() || stream == nullptr) return Code::kInvalidResourceHandle;
    const Code code = runtime_.captures.wait(stream, event->second);
    const OperationPtr& operation = event->second.operation;
    if (ok(code) && stream->capture == nullptr && operation != nullptr) {
      runtime_.enqueue(*stream, nullptr, {operation});
    }
    return code;
  });
}

Code HostGraphs::launch_kernel(StreamHandle stream_handle, const KernelFunction& kernel,
                               const LaunchDims& dims, KernelArguments arguments) {
  return runtime_.call_that_may_block("launch_kernel", [&](const ThreadState&) {
    if (const Code code = check_launch(kernel, dims, arguments); !ok(code)) {
      const std::lock_guard lock(runtime_.mutex);
      const auto stream = runtime_.find_stream(stream_handle);
      return stream == nullptr ? code : runtime_.captures.refuse_launch(*stream, code);
    }
    // A body that runs at once reads the caller's arguments in place.
    std::array<const void*, kMaxKernelArguments> table;
    for (std::size_t i = 0; i < arguments.size(); ++i)
      table[i] = arguments[i].data;
    return runtime_.submit(
        stream_handle, [&] { return run_kernel(kernel, dims, table.data()); },
        [&] {
          return KernelWork{kernel, dims, FrozenArguments(arguments)};
        });
  });
}

Code HostGraphs::memset(StreamHandle stream, void* destination, std::uint8_t value,
                        std::size_t bytes) {
  return runtime_.call_that_may_block("memset", [&](const ThreadState&) {
    if (bytes == 0) return Code::kSuccess;  // not even a node, as in CUDA
    if (destination == nullptr) return Code::kInvalidValue;
    const MemsetWork work{destination, value, bytes};
    return runtime_.submit(
        stream, [&] { return run(work); }, [&] { return work; });
  });
}

Code HostGraphs::launch_host_function(StreamHandle stream, void (*function)(void*), void* data) {
  return runtime_.call_that_may_block("launch_host_function", [&](const ThreadState&) {
    if (function == nullptr) return Code::kInvalidValue;
    const HostWork work{function, data};
    return runtime_.submit(
        stream, [&] { return run(work); }, [&] { return work; });
  });
}

namespace {

bool is_mode(CaptureMode mode) {
  return mode == CaptureMode::kGlobal || mode == CaptureMode::kThreadLocal ||
         mode == CaptureMode::kRelaxed;
}

}  // namespace

Code HostGraphs::begin_capture(StreamHandle handle, CaptureMode mode) {
  return runtime_.call([&](const ThreadState& thread) {
    if (!is_mode(mode)) return Code::kInvalidValue;
    const std::lock_guard lock(runtime_.mutex);
    const auto stream = runtime_.find_stream(handle);
    if (stream == nullptr) return Code::kInvalidResourceHandle;
    return runtime_.captures.begin(stream, mode, thread.caller(), runtime_.next_handle());
  });
}

Code HostGraphs::end_capture(StreamHandle handle, GraphHandle* graph) {
  return runtime_.call([&](const ThreadState& thread) {
    const std::lock_guard lock(runtime_.mutex);
    const auto stream = runtime_.find_stream(handle);
    if (stream == nullptr) return Code::kInvalidResourceHandle;
    std::shared_ptr<Graph> captured;
    bool is_of_body = false;
    const Code code = runtime_.captures.end(*stream, thread.caller(), &captured, &is_of_body);
    if (!ok(code)) return code;
    const GraphHandle name = captured->handle();
    if (!is_of_body) runtime_.graphs.emplace(name, std::move(captured));
    *graph = name;
    return Code::kSuccess;
  });
}

Code HostGraphs::capture_info(StreamHandle handle, CaptureInfo* info) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto stream = runtime_.find_stream(handle);
    if (stream == nullptr) return Code::kInvalidResourceHandle;
    return runtime_.captures.info(*stream, info);
  });
}

Code HostGraphs::exchange_capture_mode(CaptureMode* mode) {
  return runtime_.call([&](ThreadState& thread) {
    if (!is_mode(*mode)) return Code::kInvalidValue;
    std::swap(thread.mode, *mode);
    return Code::kSuccess;
  });
}

Code HostGraphs::destroy_graph(GraphHandle graph) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    return runtime_.graphs.erase(graph) == 1 ? Code::kSuccess : Code::kInvalidValue;
  });
}

Code HostGraphs::graph_nodes(GraphHandle graph, std::vector<NodeHandle>* nodes) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const std::shared_ptr<const Graph> found = runtime_.find_graph(graph);
    if (found == nullptr) return Code::kInvalidValue;
    std::vector<NodeHandle> found_nodes(found->nodes().size());
    for (std::size_t i = 0; i < found_nodes.size(); ++i)
      found_nodes[i] = found->node_handle(i);
    *nodes = std::move(found_nodes);
    return Code::kSuccess;
  });
}

namespace {

// Requires: the runtime's mutex is held.
const Node* find_node(const Runtime& runtime, NodeHandle handle) {
  const std::shared_ptr<const Graph> graph = runtime.find_graph(Graph::graph_of(handle));
  return graph == nullptr ? nullptr : graph->find(handle);  // which `runtime` keeps
}

}  // namespace

Code HostGraphs::node_type(NodeHandle handle, NodeType* type) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const Node* const node = find_node(runtime_, handle);
    if (node == nullptr) return Code::kInvalidValue;
    *type = type_of(node->work);
    return Code::kSuccess;
  });
}

Code HostGraphs::read_nodes(GraphHandle graph, std::vector<NodeContents>* contents) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const std::shared_ptr<const Graph> found = runtime_.find_graph(graph);
    if (found == nullptr) return Code::kInvalidValue;
    std::vector<NodeContents> read;
    for (const Node& node : found->nodes()) {
      const NodeHandle handle = found->node_handle(read.size());
      read.push_back(contents_of(node.work));
      read.back().node = handle;
    }
    *contents = std::move(read);
    return Code::kSuccess;
  });
}

Code HostGraphs::node_dependencies(NodeHandle handle, std::vector<NodeHandle>* dependencies) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const Node* const node = find_node(runtime_, handle);
    if (node == nullptr) return Code::kInvalidValue;
    *dependencies = node->dependencies;
    return Code::kSuccess;
  });
}

Code HostGraphs::add_root_kernel(GraphHandle handle, const KernelFunction& kernel,
                                 const LaunchDims& dims, KernelArguments arguments,
                                 NodeHandle* node) {
  return runtime_.call([&](const ThreadState&) {
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
  return runtime_.call([&](const ThreadState&) {
    if (const Code code = check_launch(kernel, dims, arguments); !ok(code)) return code;
    const std::lock_guard lock(runtime_.mutex);
    const auto found = runtime_.graphs.find(handle);
    if (found == runtime_.graphs.end()) return Code::kInvalidValue;
    *node = found->second->add_leaf(KernelWork{kernel, dims, FrozenArguments(arguments)});
    return Code::kSuccess;
  });
}

Code HostGraphs::instantiate(GraphHandle handle, ExecHandle* exec) {
  return runtime_.call_that_may_block("instantiate", [&](const ThreadState& thread) {
    std::shared_ptr<const Graph> graph;
    {
      const std::lock_guard lock(runtime_.mutex);
      const auto found = runtime_.graphs.find(handle);
      if (found == runtime_.graphs.end()) return Code::kInvalidValue;
      if (const Code code = runtime_.captures.admit_unsafe(thread.caller()); !ok(code)) return code;
      graph = found->second;
      if (!graph->is_executable()) return Code::kInvalidValue;
      const bool is_unique = graph->has_conditionals();  // one executable graph at a time
      for (const auto& [name, other] : runtime_.execs) {
        if (is_unique && other->source() == handle) return Code::kNotSupported;
      }
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
  return runtime_.call_that_may_block("destroy_exec", [&](const ThreadState& thread) {
    const std::lock_guard lock(runtime_.mutex);
    const auto found = runtime_.execs.find(exec);
    if (found == runtime_.execs.end()) return Code::kInvalidValue;
    // 900: destroying an executable graph is a potentially unsafe call, destroying a graph is not.
    if (const Code code = runtime_.captures.admit_unsafe(thread.caller()); !ok(code)) return code;
    runtime_.execs.erase(found);  // a launch that is running holds it until it is done
    return Code::kSuccess;
  });
}

Code HostGraphs::launch(ExecHandle handle, StreamHandle stream_handle) {
  return runtime_.call_that_may_block("launch", [&](const ThreadState&) {
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

Code HostGraphs::graph_edges(GraphHandle graph, std::vector<GraphEdge>* edges) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const std::shared_ptr<const Graph> found = runtime_.find_graph(graph);
    if (found == nullptr) return Code::kInvalidValue;
    *edges = found->edges();
    return Code::kSuccess;
  });
}

Code HostGraphs::write_dot(GraphHandle graph, const char* path) {
  return runtime_.call([&](const ThreadState&) {
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
  return runtime_.call([&](const ThreadState&) {
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

// What a node has is what can be set, but for host functions and conditional nodes.
Code HostGraphs::prepare_patch(NodeHandle handle, NodePatch* patch) {
  bool is_fixed = false;  // which is no error of the thread
  const Code code = runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const Node* const node = find_node(runtime_, handle);
    if (node == nullptr) return Code::kInvalidValue;
    is_fixed = !is_patchable(node->work);
    if (is_fixed) return Code::kSuccess;
    patch->node = handle;
    patch->bytes = patchable_bytes(node->work);
    patch->dims = contents_of(node->work).dims;
    return Code::kSuccess;
  });
  return is_fixed ? Code::kNotSupported : code;
}

Code HostGraphs::set_node(ExecHandle handle, const NodePatch& patch) {
  return runtime_.call([&](const ThreadState&) {
    std::shared_ptr<Exec> exec;
    {
      const std::lock_guard lock(runtime_.mutex);
      exec = find_exec_with(handle, patch.node);
    }
    if (exec == nullptr) return Code::kInvalidValue;
    exec->set_node(patch);
    return Code::kSuccess;
  });
}

Code HostGraphs::create_condition(GraphHandle handle, ConditionHandle* condition) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const std::shared_ptr<Graph> graph = runtime_.find_graph(handle);
    if (graph == nullptr) return Code::kInvalidValue;
    *condition = graph->add_condition()->handle();
    return Code::kSuccess;
  });
}

namespace {

bool is_size_of(ConditionalKind kind, std::size_t size) {
  switch (kind) {
    case ConditionalKind::kIf:
      return size == 1 || size == 2;
    case ConditionalKind::kWhile:
      return size == 1;
    case ConditionalKind::kSwitch:
      return size > 0;
  }
  return false;
}

}  // namespace

Code HostGraphs::add_conditional(GraphHandle handle, std::span<const NodeHandle> dependencies,
                                 ConditionHandle condition, ConditionalKind kind, std::size_t size,
                                 NodeHandle* node, std::vector<GraphHandle>* bodies) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const std::shared_ptr<Graph> graph = runtime_.find_graph(handle);
    if (graph == nullptr || !is_size_of(kind, size)) return Code::kInvalidValue;
    const auto is_known = [&](NodeHandle other) { return graph->find(other) != nullptr; };
    if (!std::ranges::all_of(dependencies, is_known)) return Code::kInvalidValue;
    ConditionalWork work{kind, graph->find_condition(condition), {}};
    if (work.condition == nullptr || work.condition->is_taken) return Code::kInvalidValue;
    std::erase_if(runtime_.bodies, [](const auto& body) { return body.second.expired(); });
    std::vector<GraphHandle> made;
    for (std::size_t i = 0; i < size; ++i) {
      const auto name = static_cast<GraphHandle>(runtime_.next_handle());
      runtime_.bodies.emplace(name, work.bodies.emplace_back(std::make_shared<Graph>(name)));
      made.push_back(name);
    }
    work.condition->is_taken = true;
    *node = graph->add(std::move(work), dependencies);
    *bodies = std::move(made);
    return Code::kSuccess;
  });
}

Code HostGraphs::begin_capture_to(StreamHandle handle, GraphHandle graph, CaptureMode mode) {
  return runtime_.call([&](const ThreadState& thread) {
    if (!is_mode(mode)) return Code::kInvalidValue;
    const std::lock_guard lock(runtime_.mutex);
    const auto stream = runtime_.find_stream(handle);
    if (stream == nullptr) return Code::kInvalidResourceHandle;
    std::shared_ptr<Graph> body =
        runtime_.bodies.contains(graph) ? runtime_.find_graph(graph) : nullptr;
    if (body == nullptr) return Code::kInvalidValue;
    return runtime_.captures.begin(stream, mode, thread.caller(), runtime_.next_handle(),
                                   std::move(body));
  });
}

Code HostGraphs::set_capture_dependencies(StreamHandle handle,
                                          std::span<const NodeHandle> dependencies) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto stream = runtime_.find_stream(handle);
    if (stream == nullptr) return Code::kInvalidResourceHandle;
    return CaptureTable::set_dependencies(*stream, dependencies);
  });
}

bool HostGraphs::are_alike(GraphHandle a, GraphHandle b) {
  const std::lock_guard lock(runtime_.mutex);
  const auto first = runtime_.graphs.find(a);
  const auto second = runtime_.graphs.find(b);
  return first != runtime_.graphs.end() && second != runtime_.graphs.end() &&
         host::are_alike(*first->second, *second->second);
}

}  // namespace cgtree::host
