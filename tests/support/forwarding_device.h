// ForwardingDevice: a device in front of another, with a hook around every call.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <type_traits>

#include "interop/device/condition.h"
#include "interop/device/device_api.h"

namespace cgtree::testing {

enum class CallKind {
  kAllocate,     // memory
  kFree,         // memory
  kMake,         // a stream, event, graph or executable graph
  kDestroy,      // one of those
  kWork,         // enqueued or captured
  kCapture,      // begin, end, mode
  kGraph,        // adds to a graph, or changes an executable one
  kQuery,        // queries, which do not wait
  kSynchronize,  // the host waits
};

struct DeviceCall {
  const char* function;
  CallKind kind;
  StreamHandle stream = StreamHandle::kNull;  // kNull if the function has none
};

// The forwarded call, valid only during around(). It does not allocate, because tests may exhaust
// memory.
class Forward {
 public:
  template <typename Function>
  Forward(Function&& function) noexcept  // NOLINT(google-explicit-constructor)
      : function_(&function), call_([](const void* address) {
          return (*static_cast<const std::remove_reference_t<Function>*>(address))();
        }) {}
  Code operator()() const { return call_(function_); }

 private:
  const void* function_;
  Code (*call_)(const void*);
};

// A CallHook is called around every function of the device. Thread safety: as the device.
class CallHook {
 public:
  virtual ~CallHook() = default;
  virtual Code around(const DeviceCall& call, Forward forward) {
    static_cast<void>(call);
    return forward();
  }
};

class ForwardingGraphs : public GraphAPI {
 public:
  // Requires: both outlive the object.
  ForwardingGraphs(DeviceAPI& target, CallHook& hook) : target_(&target), hook_(&hook) {}

  Code create_event(EventHandle* event) override;
  Code destroy_event(EventHandle event) override;
  Code record_event(EventHandle event, StreamHandle stream) override;
  Code query_event(EventHandle event) override;
  Code synchronize_event(EventHandle event) override;
  Code wait_event(StreamHandle stream, EventHandle event) override;
  Code launch_kernel(StreamHandle stream, const KernelFunction& kernel, const LaunchDims& dims,
                     KernelArguments arguments) override;
  Code memset(StreamHandle stream, void* destination, std::uint8_t value,
              std::size_t bytes) override;
  Code launch_host_function(StreamHandle stream, void (*function)(void*), void* data) override;
  Code allocate_in_order(StreamHandle stream, std::size_t bytes, void** data) override;
  Code free_in_order(StreamHandle stream, void* data) override;
  Code begin_capture(StreamHandle stream, CaptureMode mode) override;
  Code end_capture(StreamHandle stream, GraphHandle* graph) override;
  Code capture_info(StreamHandle stream, CaptureInfo* info) override;
  Code exchange_capture_mode(CaptureMode* mode) override;
  Code destroy_graph(GraphHandle graph) override;
  Code graph_nodes(GraphHandle graph, std::vector<NodeHandle>* nodes) override;
  Code node_type(NodeHandle node, NodeType* type) override;
  Code read_nodes(GraphHandle graph, std::vector<NodeContents>* contents) override;
  Code node_dependencies(NodeHandle node, std::vector<NodeHandle>* dependencies) override;
  Code add_root_kernel(GraphHandle graph, const KernelFunction& kernel, const LaunchDims& dims,
                       KernelArguments arguments, NodeHandle* node) override;
  Code add_leaf_kernel(GraphHandle graph, const KernelFunction& kernel, const LaunchDims& dims,
                       KernelArguments arguments, NodeHandle* node) override;
  Code instantiate(GraphHandle graph, ExecHandle* exec) override;
  Code instantiate_freeing(GraphHandle graph, ExecHandle* exec) override;
  Code destroy_exec(ExecHandle exec) override;
  Code launch(ExecHandle exec, StreamHandle stream) override;
  Code set_kernel_node(ExecHandle exec, NodeHandle node, const KernelFunction& kernel,
                       const LaunchDims& dims, KernelArguments arguments) override;
  Code prepare_patch(NodeHandle node, NodePatch* patch) override;
  bool are_alike(GraphHandle a, GraphHandle b) override { return target().are_alike(a, b); }
  Code set_node(ExecHandle exec, const NodePatch& patch) override;
  Code enable_node(ExecHandle exec, NodeHandle node, bool is_enabled) override;
  Code graph_edges(GraphHandle graph, std::vector<GraphEdge>* edges) override;
  Code write_dot(GraphHandle graph, const char* path) override;
  Code create_condition(GraphHandle graph, ConditionHandle* condition) override;
  Code add_conditional(GraphHandle graph, std::span<const NodeHandle> dependencies,
                       ConditionHandle condition, ConditionalKind kind, std::size_t size,
                       NodeHandle* node, std::vector<GraphHandle>* bodies) override;
  Code begin_capture_to(StreamHandle stream, GraphHandle graph, CaptureMode mode) override;
  Code set_capture_dependencies(StreamHandle stream,
                                std::span<const NodeHandle> dependencies) override;

  // The next five functions are not passed to the hook.
  Code create_timed_event(EventHandle* event) override {
    return target().create_timed_event(event);
  }
  Code elapsed(EventHandle from, EventHandle to, std::chrono::nanoseconds* time) override {
    return target().elapsed(from, to, time);
  }
  Code insert_kernel(GraphHandle graph, std::span<const NodeHandle> after,
                     std::span<const NodeHandle> before, const KernelFunction& kernel,
                     const LaunchDims& dims, KernelArguments arguments, NodeHandle* node) override {
    return target().insert_kernel(graph, after, before, kernel, dims, arguments, node);
  }
  Code peek_last_error() noexcept override { return target().peek_last_error(); }
  Code take_last_error() noexcept override { return target().take_last_error(); }

  void set_target(DeviceAPI& target) noexcept { target_ = &target; }

 protected:
  GraphAPI& target() const noexcept { return *target_->graphs(); }
  DeviceAPI& device() const noexcept { return *target_; }
  CallHook& hook() const noexcept { return *hook_; }

 private:
  DeviceAPI* target_;
  CallHook* hook_;
};

class ForwardingDevice : public DeviceAPI {
 public:
  ForwardingDevice(DeviceAPI& target, CallHook& hook)
      : ForwardingDevice(target, hook, std::make_unique<ForwardingGraphs>(target, hook)) {}
  ForwardingDevice(DeviceAPI& target, CallHook& hook, std::unique_ptr<ForwardingGraphs> graphs)
      : target_(&target), hook_(&hook), graphs_(std::move(graphs)) {}

  std::string_view name() const noexcept override { return target_->name(); }
  AttributeValue attribute(int id, DeviceAttribute attribute) noexcept override {
    return target_->attribute(id, attribute);
  }
  Code set_device(int id) override { return target_->set_device(id); }
  Code current_device(int* id) override { return target_->current_device(id); }
  Code alloc_data_space(int id, std::size_t bytes, void** data) override;
  Code free_data_space(int id, void* data) override;
  Code alloc_pinned(std::size_t bytes, void** data) override;
  Code free_pinned(void* data) override;
  Code pointer_attributes(const void* pointer, PointerAttributes* attributes) override;
  Code allocation_of(const void* pointer, DeviceAllocation* allocation) override;
  Code copy(StreamHandle stream, void* destination, const void* source, std::size_t bytes) override;
  Code copy_peer(StreamHandle stream, void* destination, int destination_id, const void* source,
                 int source_id, std::size_t bytes) override;
  Code create_stream(int id, StreamKind kind, StreamHandle* stream) override;
  Code destroy_stream(StreamHandle stream) override;
  Code synchronize_stream(StreamHandle stream) override;
  Code query_stream(StreamHandle stream) override;
  Code stream_number(int id, StreamHandle stream, std::uint64_t* number) override;
  Code stream_device(StreamHandle stream, int* id) override;
  Code stream_partition(StreamHandle stream, std::uint64_t* partition) override;
  Code synchronize_device(int id) override;
  GraphAPI* graphs() noexcept override { return graphs_.get(); }
  // Functions that map memory are not passed to the hook.
  Code mapping_granularity(int id, std::size_t* bytes) override {
    return target_->mapping_granularity(id, bytes);
  }
  Code reserve_addresses(int id, std::size_t bytes, void** address) override {
    return target_->reserve_addresses(id, bytes, address);
  }
  Code free_addresses(void* address, std::size_t bytes) override {
    return target_->free_addresses(address, bytes);
  }
  Code create_memory(int id, std::size_t bytes, PhysicalMemory* memory) override {
    return target_->create_memory(id, bytes, memory);
  }
  Code release_memory(PhysicalMemory memory) override { return target_->release_memory(memory); }
  Code map_memory(int id, void* address, std::size_t bytes, PhysicalMemory memory) override {
    return target_->map_memory(id, address, bytes, memory);
  }
  Code unmap_memory(void* address, std::size_t bytes) override {
    return target_->unmap_memory(address, bytes);
  }

  // Requires: objects made on the old target are not used on the new one.
  void set_target(DeviceAPI& target) noexcept {
    target_ = &target;
    graphs_->set_target(target);
  }

 protected:
  DeviceAPI& target() const noexcept { return *target_; }
  CallHook& hook() const noexcept { return *hook_; }

 private:
  DeviceAPI* target_;
  CallHook* hook_;
  std::unique_ptr<ForwardingGraphs> graphs_;
};

}  // namespace cgtree::testing
