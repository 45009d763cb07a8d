// HostGraphs: the events, graphs and progress of the host device.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "interop/device/condition.h"
#include "interop/device/graph_api.h"
#include "simulator/runtime.h"

namespace cgtree::host {

// Thread safety: any thread.
class HostGraphs final : public GraphAPI {
 public:
  explicit HostGraphs(Runtime& runtime) noexcept : runtime_(runtime) {}

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
  Code instantiate(GraphHandle graph, ExecHandle* exec) override {
    return instantiate(graph, /*frees_on_launch=*/false, exec);
  }
  Code instantiate_freeing(GraphHandle graph, ExecHandle* exec) override {
    return instantiate(graph, /*frees_on_launch=*/true, exec);
  }
  Code destroy_exec(ExecHandle exec) override;
  Code launch(ExecHandle exec, StreamHandle stream) override;
  Code set_kernel_node(ExecHandle exec, NodeHandle node, const KernelFunction& kernel,
                       const LaunchDims& dims, KernelArguments arguments) override;
  Code prepare_patch(NodeHandle node, NodePatch* patch) override;
  Code set_node(ExecHandle exec, const NodePatch& patch) override;
  Code enable_node(ExecHandle exec, NodeHandle node, bool is_enabled) override;
  bool are_alike(GraphHandle a, GraphHandle b) override;

  Code graph_edges(GraphHandle graph, std::vector<GraphEdge>* edges) override;
  Code write_dot(GraphHandle graph, const char* path) override;

  Code peek_last_error() noexcept override;
  Code take_last_error() noexcept override;

  Code create_condition(GraphHandle graph, ConditionHandle* condition) override;
  Code add_conditional(GraphHandle graph, std::span<const NodeHandle> dependencies,
                       ConditionHandle condition, ConditionalKind kind, std::size_t size,
                       NodeHandle* node, std::vector<GraphHandle>* bodies) override;
  Code begin_capture_to(StreamHandle stream, GraphHandle graph, CaptureMode mode) override;
  Code set_capture_dependencies(StreamHandle stream,
                                std::span<const NodeHandle> dependencies) override;

  Code create_timed_event(EventHandle* event) override;
  Code elapsed(EventHandle from, EventHandle to, std::chrono::nanoseconds* time) override;
  Code insert_kernel(GraphHandle graph, std::span<const NodeHandle> after,
                     std::span<const NodeHandle> before, const KernelFunction& kernel,
                     const LaunchDims& dims, KernelArguments arguments, NodeHandle* node) override;

 private:
  Code instantiate(GraphHandle graph, bool frees_on_launch, ExecHandle* exec);
  Code make_event(const char* name, bool is_timed, EventHandle* event);
  // Calls read() of an object with the runtime's mutex held; returns kInvalidValue if there is
  // none.
  template <typename Read>
  Code with_graph(GraphHandle handle, Read read);
  template <typename Read>
  Code with_node(NodeHandle handle, Read read);
  // Calls add(graph, work), which returns a node or nothing.
  template <typename Add>
  Code add_kernel(GraphHandle handle, const KernelFunction& kernel, const LaunchDims& dims,
                  KernelArguments arguments, NodeHandle* node, Add add);
  // Returns the exec if it has the node and the node's graph still exists; else null.
  std::shared_ptr<Exec> find_exec_with(ExecHandle exec, NodeHandle node) const;

  Code admit_wait(EventHandle event, const ThreadState& thread, OperationPtr* operation);

  Runtime& runtime_;
};

}  // namespace cgtree::host
