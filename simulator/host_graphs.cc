// Events, work, captures and graphs: each function finds the objects, checks the rules of capture,
// and does the work.
#include "simulator/host_graphs.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <utility>

#include "interop/device/graph_api.h"
#include "simulator/graph.h"
#include "simulator/memory.h"
#include "simulator/strict_memory.h"

namespace cgtree::host {

Code HostGraphs::make_event(const char* name, bool is_timed, EventHandle* event) {
  return runtime_.call_that_may_block(name, [&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const auto made = runtime_.event_handles.take([&] { return runtime_.next_handle(); });
    runtime_.events.emplace(made, HostEvent{.is_timed = is_timed});
    *event = made;
    return Code::kSuccess;
  });
}

Code HostGraphs::create_event(EventHandle* event) {
  return make_event("create_event", /*is_timed=*/false, event);
}

Code HostGraphs::create_timed_event(EventHandle* event) {
  return make_event("create_timed_event", /*is_timed=*/true, event);
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
  return runtime_.captures.admit_wait(event->second, thread);
}

Code HostGraphs::query_event(EventHandle handle) {
  return runtime_.call([&](const ThreadState& thread) {
    OperationPtr operation;
    if (const Code code = admit_wait(handle, thread, &operation); !ok(code)) return code;
    if (operation == nullptr) return Code::kSuccess;
    runtime_.queue->run_some();
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
    return runtime_.submit(stream, MemsetWork{destination, value, bytes});
  });
}

Code HostGraphs::launch_host_function(StreamHandle stream, void (*function)(void*), void* data) {
  return runtime_.call_that_may_block("launch_host_function", [&](const ThreadState&) {
    if (function == nullptr) return Code::kInvalidValue;
    return runtime_.submit(stream, HostWork{function, data});
  });
}

// Calls allocate memory at once, in their order; only contents follow the streams.
Code HostGraphs::allocate_in_order(StreamHandle handle, std::size_t bytes, void** data) {
  return runtime_.call_on(handle, [&](const auto& stream, const ThreadState& thread) {
    if (bytes == 0) return Code::kInvalidValue;
    if (const Code code = runtime_.captures.admit_in_order(*stream, thread); !ok(code)) return code;
    const bool captures = stream->capture != nullptr;
    auto made = OrderedMemory::make(runtime_.memory, stream->device, bytes, captures);
    if (made == nullptr) return Code::kMemoryAllocation;
    *data = made->data;
    if (captures) {
      runtime_.captures.append(*stream, AllocationWork{std::move(made)});
    } else {
      runtime_.allocated.emplace(made->data, std::move(made));
    }
    return Code::kSuccess;
  });
}

Code HostGraphs::free_in_order(StreamHandle handle, void* data) {
  return runtime_.call_that_may_block("free_in_order", [&](const ThreadState& thread) {
    std::shared_ptr<OrderedMemory> freed;
    {
      const std::lock_guard lock(runtime_.mutex);
      const auto stream = runtime_.find_stream(handle);
      if (stream == nullptr) return Code::kInvalidResourceHandle;
      const Code code = runtime_.captures.admit_in_order(*stream, thread);
      if (!ok(code)) return code;
      const bool captures = stream->capture != nullptr;
      if (captures) freed = stream->capture->graph->find_allocation(data);
      const auto found = runtime_.allocated.find(data);
      if (freed == nullptr && found != runtime_.allocated.end()) {
        if (captures && !found->second->is_of_graph) return Code::kInvalidValue;
        freed = found->second;
        if (!captures) runtime_.allocated.erase(found);
      }
    }
    if (freed == nullptr) return Code::kInvalidValue;
    return runtime_.submit(handle, FreeWork{std::move(freed)});
  });
}

namespace {

bool is_mode(CaptureMode mode) {
  return mode == CaptureMode::kGlobal || mode == CaptureMode::kThreadLocal ||
         mode == CaptureMode::kRelaxed;
}

// Source: CUDA instantiates no graph with a memset of unmapped memory (driver 580).
bool clears_lost_memory(const Graph& graph, const StrictMemory* checker) {
  if (checker == nullptr) return false;
  return std::ranges::any_of(graph.nodes(), [checker](const Node& node) {
    return std::holds_alternative<MemsetWork>(node.work) && !checker->objection(node.work).empty();
  });
}

}  // namespace

Code HostGraphs::begin_capture(StreamHandle handle, CaptureMode mode) {
  if (!is_mode(mode)) return runtime_.refuse(Code::kInvalidValue);
  return runtime_.call_on(handle, [&](const auto& stream, const ThreadState& thread) {
    return runtime_.captures.begin(stream, mode, thread, runtime_.next_handle());
  });
}

Code HostGraphs::end_capture(StreamHandle handle, GraphHandle* graph) {
  return runtime_.call_on(handle, [&](const auto& stream, const ThreadState& thread) {
    std::shared_ptr<Graph> captured;
    const Code code = runtime_.captures.end(*stream, thread, &captured);
    if (!ok(code)) return code;
    const GraphHandle name = captured->handle();
    if (!runtime_.bodies.contains(name)) runtime_.graphs.emplace(name, std::move(captured));
    *graph = name;
    return Code::kSuccess;
  });
}

Code HostGraphs::capture_info(StreamHandle handle, CaptureInfo* info) {
  return runtime_.call_on(handle, [&](const auto& stream, const ThreadState&) {
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

template <typename Read>
Code HostGraphs::with_graph(GraphHandle handle, Read read) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const std::shared_ptr<Graph> graph = runtime_.find_graph(handle);
    if (graph == nullptr) return Code::kInvalidValue;
    read(*graph);
    return Code::kSuccess;
  });
}

template <typename Read>
Code HostGraphs::with_node(NodeHandle handle, Read read) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const std::shared_ptr<Graph> graph = runtime_.find_graph(Graph::graph_of(handle));
    const Node* const node = graph == nullptr ? nullptr : graph->find(handle);
    if (node == nullptr) return Code::kInvalidValue;
    read(*node);
    return Code::kSuccess;
  });
}

Code HostGraphs::graph_nodes(GraphHandle handle, std::vector<NodeHandle>* nodes) {
  return with_graph(handle, [&](const Graph& graph) {
    std::vector<NodeHandle> found(graph.nodes().size());
    for (std::size_t i = 0; i < found.size(); ++i)
      found[i] = graph.node_handle(i);
    *nodes = std::move(found);
  });
}

Code HostGraphs::graph_edges(GraphHandle handle, std::vector<GraphEdge>* edges) {
  return with_graph(handle, [&](const Graph& graph) { *edges = graph.edges(); });
}

Code HostGraphs::read_nodes(GraphHandle handle, std::vector<NodeContents>* contents) {
  return with_graph(handle, [&](const Graph& graph) {
    std::vector<NodeContents> read;
    for (const Node& node : graph.nodes()) {
      const NodeHandle name = graph.node_handle(read.size());
      read.push_back(contents_of(node.work));
      read.back().node = name;
    }
    *contents = std::move(read);
  });
}

Code HostGraphs::node_type(NodeHandle handle, NodeType* type) {
  return with_node(handle, [&](const Node& node) { *type = type_of(node.work); });
}

Code HostGraphs::node_dependencies(NodeHandle handle, std::vector<NodeHandle>* dependencies) {
  return with_node(handle, [&](const Node& node) { *dependencies = node.dependencies; });
}

template <typename Add>
Code HostGraphs::add_kernel(GraphHandle handle, const KernelFunction& kernel,
                            const LaunchDims& dims, KernelArguments arguments, NodeHandle* node,
                            Add add) {
  return runtime_.call([&](const ThreadState&) {
    if (const Code code = check_launch(kernel, dims, arguments); !ok(code)) return code;
    const std::lock_guard lock(runtime_.mutex);
    const std::shared_ptr<Graph> graph = runtime_.find_whole_graph(handle);
    if (graph == nullptr) return Code::kInvalidValue;
    const std::optional<NodeHandle> made =
        add(*graph, KernelWork{kernel, dims, FrozenArguments(arguments)});
    if (!made) return Code::kInvalidValue;
    *node = *made;
    return Code::kSuccess;
  });
}

Code HostGraphs::add_root_kernel(GraphHandle graph, const KernelFunction& kernel,
                                 const LaunchDims& dims, KernelArguments arguments,
                                 NodeHandle* node) {
  return add_kernel(graph, kernel, dims, arguments, node,
                    [](Graph& found, Work work) { return found.add_root(std::move(work)); });
}

Code HostGraphs::add_leaf_kernel(GraphHandle graph, const KernelFunction& kernel,
                                 const LaunchDims& dims, KernelArguments arguments,
                                 NodeHandle* node) {
  return add_kernel(graph, kernel, dims, arguments, node,
                    [](Graph& found, Work work) { return found.add_leaf(std::move(work)); });
}

Code HostGraphs::insert_kernel(GraphHandle graph, std::span<const NodeHandle> after,
                               std::span<const NodeHandle> before, const KernelFunction& kernel,
                               const LaunchDims& dims, KernelArguments arguments,
                               NodeHandle* node) {
  return add_kernel(graph, kernel, dims, arguments, node, [&](Graph& found, Work work) {
    return found.insert(std::move(work), after, before);
  });
}

Code HostGraphs::instantiate(GraphHandle handle, bool frees_on_launch, ExecHandle* exec) {
  return runtime_.call_that_may_block("instantiate", [&](const ThreadState& thread) {
    std::shared_ptr<const Graph> graph;
    {
      const std::lock_guard lock(runtime_.mutex);
      graph = runtime_.find_whole_graph(handle);
      if (graph == nullptr) return Code::kInvalidValue;
      if (const Code code = runtime_.captures.admit_unsafe(thread); !ok(code)) return code;
      if (!graph->is_executable()) return Code::kInvalidValue;
      if (clears_lost_memory(*graph, runtime_.checker.get())) return Code::kInvalidValue;
      // One executable graph at a time.
      const bool is_unique = graph->has_conditionals() || graph->has_memory_nodes();
      for (const auto& [name, other] : runtime_.execs) {
        if (is_unique && other->source() == handle) return Code::kNotSupported;
      }
    }
    auto made = std::make_shared<Exec>(*graph, frees_on_launch);
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
    if (const Code code = runtime_.captures.admit_unsafe(thread); !ok(code)) return code;
    runtime_.execs.erase(found);  // a running launch holds it until it ends
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
      if (const Code code = runtime_.allocate_for(*exec); !ok(code)) return code;
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

Code HostGraphs::write_dot(GraphHandle graph, const char* path) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    const std::shared_ptr<const Graph> found = runtime_.find_whole_graph(graph);
    if (found == nullptr) return Code::kInvalidValue;
    std::ofstream file(path);
    file << to_dot(*found);
    return file.flush() ? Code::kSuccess : Code::kInvalidValue;
  });
}

std::shared_ptr<Exec> HostGraphs::find_exec_with(ExecHandle exec, NodeHandle node) const {
  const std::lock_guard lock(runtime_.mutex);
  const auto found = runtime_.execs.find(exec);
  const auto graph = runtime_.find_whole_graph(Graph::graph_of(node));
  if (found == runtime_.execs.end() || graph == nullptr) return nullptr;
  const bool has_it = graph->find(node) != nullptr && found->second->find(node) != nullptr;
  return has_it ? found->second : nullptr;
}

Code HostGraphs::set_kernel_node(ExecHandle handle, NodeHandle node, const KernelFunction& kernel,
                                 const LaunchDims& dims, KernelArguments arguments) {
  return runtime_.call([&](const ThreadState&) {
    if (const Code code = check_launch(kernel, dims, arguments); !ok(code)) return code;
    const std::shared_ptr<Exec> exec = find_exec_with(handle, node);
    if (exec == nullptr || type_of(*exec->find(node)) != NodeType::kKernel) {
      return Code::kInvalidValue;
    }
    exec->set_kernel(node, kernel, dims, arguments);
    return Code::kSuccess;
  });
}

// All data of a node can be changed, except of host functions and conditionals.
Code HostGraphs::prepare_patch(NodeHandle handle, NodePatch* patch) {
  bool is_fixed = false;  // not an error of the thread
  const Code code = with_node(handle, [&](const Node& node) {
    is_fixed = !is_patchable(node.work);
    if (is_fixed) return;
    patch->node = handle;
    patch->bytes = patchable_bytes(node.work);
    patch->dims = contents_of(node.work).dims;
  });
  return is_fixed ? Code::kNotSupported : code;
}

Code HostGraphs::set_node(ExecHandle handle, const NodePatch& patch) {
  return runtime_.call([&](const ThreadState&) {
    const std::shared_ptr<Exec> exec = find_exec_with(handle, patch.node);
    if (exec == nullptr) return Code::kInvalidValue;
    exec->set_node(patch);
    return Code::kSuccess;
  });
}

Code HostGraphs::enable_node(ExecHandle handle, NodeHandle node, bool is_enabled) {
  return runtime_.call([&](const ThreadState&) {
    const std::shared_ptr<Exec> exec = find_exec_with(handle, node);
    if (exec == nullptr) return Code::kInvalidValue;
    if (std::holds_alternative<ConditionalWork>(*exec->find(node))) return Code::kNotSupported;
    exec->enable(node, is_enabled);
    return Code::kSuccess;
  });
}

Code HostGraphs::create_condition(GraphHandle handle, ConditionHandle* condition) {
  return with_graph(handle, [&](Graph& graph) { *condition = graph.add_condition()->handle(); });
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
  if (!is_mode(mode)) return runtime_.refuse(Code::kInvalidValue);
  return runtime_.call_on(handle, [&](const auto& stream, const ThreadState& thread) {
    std::shared_ptr<Graph> body =
        runtime_.bodies.contains(graph) ? runtime_.find_graph(graph) : nullptr;
    if (body == nullptr) return Code::kInvalidValue;
    return runtime_.captures.begin(stream, mode, thread, runtime_.next_handle(), std::move(body));
  });
}

Code HostGraphs::set_capture_dependencies(StreamHandle handle,
                                          std::span<const NodeHandle> dependencies) {
  return runtime_.call_on(handle, [&](const auto& stream, const ThreadState&) {
    return CaptureTable::set_dependencies(*stream, dependencies);
  });
}

bool HostGraphs::are_alike(GraphHandle a, GraphHandle b) {
  const std::lock_guard lock(runtime_.mutex);
  const auto first = runtime_.find_whole_graph(a);
  const auto second = runtime_.find_whole_graph(b);
  return first != nullptr && second != nullptr && host::are_alike(*first, *second);
}

Code HostGraphs::elapsed(EventHandle from, EventHandle to, std::chrono::nanoseconds* time) {
  return runtime_.call([&](const ThreadState&) {
    const std::lock_guard lock(runtime_.mutex);
    std::array<std::optional<HostTime>, 2> times;
    const std::array handles = {from, to};
    for (std::size_t i = 0; i < times.size(); ++i) {
      const auto found = runtime_.events.find(handles[i]);
      if (found == runtime_.events.end()) return Code::kInvalidResourceHandle;
      const HostEvent& event = found->second;
      if (!event.is_timed || !event.recorded || event.capture != nullptr) {
        return Code::kInvalidResourceHandle;
      }
      times[i] = event.operation == nullptr ? event.time : runtime_.queue->time(event.operation);
    }
    if (!times[0] || !times[1]) return Code::kNotReady;
    *time = *times[1] - *times[0];
    return Code::kSuccess;
  });
}

}  // namespace cgtree::host
