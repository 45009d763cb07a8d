// Forwards every function through the hook.
#include "tests/support/forwarding_device.h"

#include "interop/device/device_api.h"

namespace cgtree::testing {

Code ForwardingDevice::alloc_data_space(int id, std::size_t bytes, void** data) {
  return hook().around({"alloc_data_space", CallKind::kAllocate},
                       [&] { return target_->alloc_data_space(id, bytes, data); });
}
Code ForwardingDevice::free_data_space(int id, void* data) {
  return hook().around({"free_data_space", CallKind::kFree},
                       [&] { return target_->free_data_space(id, data); });
}
Code ForwardingDevice::alloc_pinned(std::size_t bytes, void** data) {
  return hook().around({"alloc_pinned", CallKind::kAllocate},
                       [&] { return target_->alloc_pinned(bytes, data); });
}
Code ForwardingDevice::free_pinned(void* data) {
  return hook().around({"free_pinned", CallKind::kFree},
                       [&] { return target_->free_pinned(data); });
}
Code ForwardingDevice::pointer_attributes(const void* pointer, PointerAttributes* attributes) {
  return hook().around({"pointer_attributes", CallKind::kQuery},
                       [&] { return target_->pointer_attributes(pointer, attributes); });
}
Code ForwardingDevice::allocation_of(const void* pointer, DeviceAllocation* allocation) {
  return hook().around({"allocation_of", CallKind::kQuery},
                       [&] { return target_->allocation_of(pointer, allocation); });
}
Code ForwardingDevice::copy(StreamHandle stream, void* destination, const void* source,
                            std::size_t bytes) {
  return hook().around({"copy", CallKind::kWork, stream},
                       [&] { return target_->copy(stream, destination, source, bytes); });
}
Code ForwardingDevice::copy_peer(StreamHandle stream, void* destination, int destination_id,
                                 const void* source, int source_id, std::size_t bytes) {
  return hook().around({"copy", CallKind::kWork, stream}, [&] {
    return target_->copy_peer(stream, destination, destination_id, source, source_id, bytes);
  });
}
Code ForwardingDevice::create_stream(int id, StreamKind kind, StreamHandle* stream) {
  return hook().around({"create_stream", CallKind::kMake},
                       [&] { return target_->create_stream(id, kind, stream); });
}
Code ForwardingDevice::destroy_stream(StreamHandle stream) {
  return hook().around({"destroy_stream", CallKind::kDestroy, stream},
                       [&] { return target_->destroy_stream(stream); });
}
Code ForwardingDevice::synchronize_stream(StreamHandle stream) {
  return hook().around({"synchronize_stream", CallKind::kSynchronize, stream},
                       [&] { return target_->synchronize_stream(stream); });
}
Code ForwardingDevice::stream_number(int id, StreamHandle stream, std::uint64_t* number) {
  return hook().around({"stream_number", CallKind::kQuery, stream},
                       [&] { return target_->stream_number(id, stream, number); });
}

Code ForwardingDevice::stream_partition(StreamHandle stream, std::uint64_t* partition) {
  return hook().around({"stream_partition", CallKind::kQuery, stream},
                       [&] { return target_->stream_partition(stream, partition); });
}

Code ForwardingDevice::stream_device(StreamHandle stream, int* id) {
  return hook().around({"stream_device", CallKind::kQuery, stream},
                       [&] { return target_->stream_device(stream, id); });
}

Code ForwardingDevice::query_stream(StreamHandle stream) {
  return hook().around({"query_stream", CallKind::kQuery, stream},
                       [&] { return target_->query_stream(stream); });
}
Code ForwardingDevice::synchronize_device(int id) {
  return hook().around({"synchronize_device", CallKind::kSynchronize},
                       [&] { return target_->synchronize_device(id); });
}

Code ForwardingGraphs::create_event(EventHandle* event) {
  return hook().around({"create_event", CallKind::kMake},
                       [&] { return target().create_event(event); });
}
Code ForwardingGraphs::destroy_event(EventHandle event) {
  return hook().around({"destroy_event", CallKind::kDestroy},
                       [&] { return target().destroy_event(event); });
}
Code ForwardingGraphs::record_event(EventHandle event, StreamHandle stream) {
  return hook().around({"record_event", CallKind::kWork, stream},
                       [&] { return target().record_event(event, stream); });
}
Code ForwardingGraphs::query_event(EventHandle event) {
  return hook().around({"query_event", CallKind::kQuery},
                       [&] { return target().query_event(event); });
}
Code ForwardingGraphs::synchronize_event(EventHandle event) {
  return hook().around({"synchronize_event", CallKind::kSynchronize},
                       [&] { return target().synchronize_event(event); });
}
Code ForwardingGraphs::wait_event(StreamHandle stream, EventHandle event) {
  return hook().around({"wait_event", CallKind::kWork, stream},
                       [&] { return target().wait_event(stream, event); });
}
Code ForwardingGraphs::launch_kernel(StreamHandle stream, const KernelFunction& kernel,
                                     const LaunchDims& dims, KernelArguments arguments) {
  return hook().around({"launch_kernel", CallKind::kWork, stream},
                       [&] { return target().launch_kernel(stream, kernel, dims, arguments); });
}
Code ForwardingGraphs::memset(StreamHandle stream, void* destination, std::uint8_t value,
                              std::size_t bytes) {
  return hook().around({"memset", CallKind::kWork, stream},
                       [&] { return target().memset(stream, destination, value, bytes); });
}
Code ForwardingGraphs::launch_host_function(StreamHandle stream, void (*function)(void*),
                                            void* data) {
  return hook().around({"launch_host_function", CallKind::kWork, stream},
                       [&] { return target().launch_host_function(stream, function, data); });
}
Code ForwardingGraphs::begin_capture(StreamHandle stream, CaptureMode mode) {
  return hook().around({"begin_capture", CallKind::kCapture, stream},
                       [&] { return target().begin_capture(stream, mode); });
}
Code ForwardingGraphs::end_capture(StreamHandle stream, GraphHandle* graph) {
  return hook().around({"end_capture", CallKind::kCapture, stream},
                       [&] { return target().end_capture(stream, graph); });
}
Code ForwardingGraphs::capture_info(StreamHandle stream, CaptureInfo* info) {
  return hook().around({"capture_info", CallKind::kQuery, stream},
                       [&] { return target().capture_info(stream, info); });
}
Code ForwardingGraphs::exchange_capture_mode(CaptureMode* mode) {
  return hook().around({"exchange_capture_mode", CallKind::kCapture},
                       [&] { return target().exchange_capture_mode(mode); });
}
Code ForwardingGraphs::create_condition(GraphHandle graph, ConditionHandle* condition) {
  return hook().around({"create_condition", CallKind::kGraph},
                       [&] { return target().create_condition(graph, condition); });
}
Code ForwardingGraphs::add_conditional(GraphHandle graph, std::span<const NodeHandle> dependencies,
                                       ConditionHandle condition, ConditionalKind kind,
                                       std::size_t size, NodeHandle* node,
                                       std::vector<GraphHandle>* bodies) {
  return hook().around({"add_conditional", CallKind::kGraph}, [&] {
    return target().add_conditional(graph, dependencies, condition, kind, size, node, bodies);
  });
}
Code ForwardingGraphs::begin_capture_to(StreamHandle stream, GraphHandle graph, CaptureMode mode) {
  return hook().around({"begin_capture_to", CallKind::kCapture, stream},
                       [&] { return target().begin_capture_to(stream, graph, mode); });
}
Code ForwardingGraphs::set_capture_dependencies(StreamHandle stream,
                                                std::span<const NodeHandle> dependencies) {
  return hook().around({"set_capture_dependencies", CallKind::kCapture, stream},
                       [&] { return target().set_capture_dependencies(stream, dependencies); });
}
Code ForwardingGraphs::destroy_graph(GraphHandle graph) {
  return hook().around({"destroy_graph", CallKind::kDestroy},
                       [&] { return target().destroy_graph(graph); });
}
Code ForwardingGraphs::graph_nodes(GraphHandle graph, std::vector<NodeHandle>* nodes) {
  return hook().around({"graph_nodes", CallKind::kQuery},
                       [&] { return target().graph_nodes(graph, nodes); });
}
Code ForwardingGraphs::node_type(NodeHandle node, NodeType* type) {
  return hook().around({"node_type", CallKind::kQuery},
                       [&] { return target().node_type(node, type); });
}
Code ForwardingGraphs::read_nodes(GraphHandle graph, std::vector<NodeContents>* contents) {
  return hook().around({"read_nodes", CallKind::kQuery},
                       [&] { return target().read_nodes(graph, contents); });
}
Code ForwardingGraphs::node_dependencies(NodeHandle node, std::vector<NodeHandle>* dependencies) {
  return hook().around({"node_dependencies", CallKind::kQuery},
                       [&] { return target().node_dependencies(node, dependencies); });
}
Code ForwardingGraphs::add_root_kernel(GraphHandle graph, const KernelFunction& kernel,
                                       const LaunchDims& dims, KernelArguments arguments,
                                       NodeHandle* node) {
  return hook().around({"add_root_kernel", CallKind::kGraph}, [&] {
    return target().add_root_kernel(graph, kernel, dims, arguments, node);
  });
}

Code ForwardingGraphs::add_leaf_kernel(GraphHandle graph, const KernelFunction& kernel,
                                       const LaunchDims& dims, KernelArguments arguments,
                                       NodeHandle* node) {
  return hook().around({"add_leaf_kernel", CallKind::kGraph}, [&] {
    return target().add_leaf_kernel(graph, kernel, dims, arguments, node);
  });
}
Code ForwardingGraphs::instantiate(GraphHandle graph, ExecHandle* exec) {
  return hook().around({"instantiate", CallKind::kMake},
                       [&] { return target().instantiate(graph, exec); });
}
Code ForwardingGraphs::instantiate_freeing(GraphHandle graph, ExecHandle* exec) {
  return hook().around({"instantiate_freeing", CallKind::kMake},
                       [&] { return target().instantiate_freeing(graph, exec); });
}
Code ForwardingGraphs::allocate_in_order(StreamHandle stream, std::size_t bytes, void** data) {
  return hook().around({"allocate_in_order", CallKind::kWork, stream},
                       [&] { return target().allocate_in_order(stream, bytes, data); });
}
Code ForwardingGraphs::free_in_order(StreamHandle stream, void* data) {
  return hook().around({"free_in_order", CallKind::kWork, stream},
                       [&] { return target().free_in_order(stream, data); });
}
Code ForwardingGraphs::destroy_exec(ExecHandle exec) {
  return hook().around({"destroy_exec", CallKind::kDestroy},
                       [&] { return target().destroy_exec(exec); });
}
Code ForwardingGraphs::launch(ExecHandle exec, StreamHandle stream) {
  return hook().around({"launch", CallKind::kWork, stream},
                       [&] { return target().launch(exec, stream); });
}
Code ForwardingGraphs::set_kernel_node(ExecHandle exec, NodeHandle node,
                                       const KernelFunction& kernel, const LaunchDims& dims,
                                       KernelArguments arguments) {
  return hook().around({"set_kernel_node", CallKind::kGraph}, [&] {
    return target().set_kernel_node(exec, node, kernel, dims, arguments);
  });
}
Code ForwardingGraphs::prepare_patch(NodeHandle node, NodePatch* patch) {
  return hook().around({"prepare_patch", CallKind::kQuery},
                       [&] { return target().prepare_patch(node, patch); });
}
Code ForwardingGraphs::set_node(ExecHandle exec, const NodePatch& patch) {
  return hook().around({"set_node", CallKind::kGraph},
                       [&] { return target().set_node(exec, patch); });
}
Code ForwardingGraphs::enable_node(ExecHandle exec, NodeHandle node, bool is_enabled) {
  return hook().around({"enable_node", CallKind::kGraph},
                       [&] { return target().enable_node(exec, node, is_enabled); });
}
Code ForwardingGraphs::graph_edges(GraphHandle graph, std::vector<GraphEdge>* edges) {
  return hook().around({"graph_edges", CallKind::kQuery},
                       [&] { return target().graph_edges(graph, edges); });
}
Code ForwardingGraphs::write_dot(GraphHandle graph, const char* path) {
  return hook().around({"write_dot", CallKind::kQuery},
                       [&] { return target().write_dot(graph, path); });
}

}  // namespace cgtree::testing
