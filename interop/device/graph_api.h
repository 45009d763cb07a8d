// GraphAPI: the optional capability of a device to capture work into graphs and to launch them.
//
// The verbs are CUDA's, one to one, and answer with CUDA's numbers (code.h), so that the cuda
// device is a thin shim and the host device can be tested against it. Out-parameters are written on
// success only.
//
// Threads: as CUDA: verbs on different objects from any thread; a graph or an executable graph is
// used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "interop/device/code.h"
#include "interop/device/handles.h"
#include "interop/device/kernel_function.h"

namespace cgtree {

// Source: cudaStreamCaptureMode. What a thread may not do while a capture is open.
enum class CaptureMode { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

// Source: cudaStreamCaptureStatus.
enum class CaptureStatus { kNone = 0, kActive = 1, kInvalidated = 2 };

enum class NodeType { kKernel, kMemcpy, kMemset, kHost, kEmpty, kOther, kChildGraph };

struct GraphEdge {
  NodeHandle from;
  NodeHandle to;

  auto operator<=>(const GraphEdge&) const = default;
};

// Source: cudaGraphExecUpdateResult.
enum class UpdateResult {
  kSuccess = 0,
  kError = 1,
  kTopologyChanged = 2,
  kNodeTypeChanged = 3,
  kFunctionChanged = 4,
  kParametersChanged = 5,
  kNotSupported = 6,
  kUnsupportedFunctionChange = 7,
  kAttributesChanged = 8,
};

struct ExecUpdate {
  UpdateResult result = UpdateResult::kSuccess;
  NodeHandle node = NodeHandle::kNull;  // of the new graph: the one in the way; null if none is
};

struct CaptureInfo {
  CaptureStatus status = CaptureStatus::kNone;
  std::uint64_t id = 0;                  // unique per capture; 0 when there is none
  std::vector<NodeHandle> dependencies;  // what the next node on the stream would depend on
};

class GraphAPI {
 public:
  virtual ~GraphAPI() = default;

  // Events. Timing is off; `record` and `wait` inside a capture become edges of the graph.
  virtual Code create_event(EventHandle* event) = 0;
  virtual Code destroy_event(EventHandle event) = 0;
  virtual Code record_event(EventHandle event, StreamHandle stream) = 0;
  virtual Code query_event(EventHandle event) = 0;  // kNotReady while pending
  virtual Code synchronize_event(EventHandle event) = 0;
  virtual Code wait_event(StreamHandle stream, EventHandle event) = 0;

  // Work. While `stream` captures, these add a node instead of running.
  virtual Code launch_kernel(StreamHandle stream, const KernelFunction& kernel,
                             const LaunchDims& dims, KernelArguments arguments) = 0;
  virtual Code memset(StreamHandle stream, void* destination, std::uint8_t value,
                      std::size_t bytes) = 0;
  virtual Code launch_host_function(StreamHandle stream, void (*function)(void*), void* data) = 0;

  // Capture.
  virtual Code begin_capture(StreamHandle stream, CaptureMode mode) = 0;
  virtual Code end_capture(StreamHandle stream, GraphHandle* graph) = 0;
  virtual Code capture_info(StreamHandle stream, CaptureInfo* info) = 0;
  // Sets this thread's mode and returns the one before. Source:
  // cudaThreadExchangeStreamCaptureMode.
  virtual Code exchange_capture_mode(CaptureMode* mode) = 0;

  // Graphs.
  virtual Code destroy_graph(GraphHandle graph) = 0;
  virtual Code graph_nodes(GraphHandle graph, std::vector<NodeHandle>* nodes) = 0;
  virtual Code node_type(NodeHandle node, NodeType* type) = 0;
  virtual Code node_dependencies(NodeHandle node, std::vector<NodeHandle>* dependencies) = 0;
  // Adds a kernel in front of all there is: what depended on nothing now depends on it. Requires
  // that the capture of `graph` has ended.
  virtual Code add_root_kernel(GraphHandle graph, const KernelFunction& kernel,
                               const LaunchDims& dims, KernelArguments arguments,
                               NodeHandle* node) = 0;
  // Adds a kernel behind all there is: it depends on what nothing depended on.
  virtual Code add_leaf_kernel(GraphHandle graph, const KernelFunction& kernel,
                               const LaunchDims& dims, KernelArguments arguments,
                               NodeHandle* node) = 0;
  virtual Code instantiate(GraphHandle graph, ExecHandle* exec) = 0;
  virtual Code destroy_exec(ExecHandle exec) = 0;
  virtual Code launch(ExecHandle exec, StreamHandle stream) = 0;
  // `node` belongs to the graph `exec` was made from, which must still exist. Launches already
  // enqueued keep the old arguments.
  virtual Code set_kernel_node(ExecHandle exec, NodeHandle node, const KernelFunction& kernel,
                               const LaunchDims& dims, KernelArguments arguments) = 0;

  // Graphs as a whole, and made by hand. A clone, and a child, is a copy: what happens to the
  // original later does not change it.
  virtual Code create_graph(GraphHandle* graph) = 0;  // without a node
  virtual Code clone_graph(GraphHandle graph, GraphHandle* clone) = 0;
  virtual Code find_in_clone(NodeHandle original, GraphHandle clone, NodeHandle* node) = 0;
  virtual Code graph_edges(GraphHandle graph, std::vector<GraphEdge>* edges) = 0;
  virtual Code add_child_graph(GraphHandle graph, std::span<const NodeHandle> dependencies,
                               GraphHandle child, NodeHandle* node) = 0;
  // Writes a file in the language of Graphviz. What it says of a node is the device's own.
  virtual Code write_dot(GraphHandle graph, const char* path) = 0;

  // Makes `exec` do what `graph` does, if they have the same nodes and edges: addresses, sizes,
  // values and functions may differ. Else kGraphExecUpdateFailure, nothing has changed, and
  // `update` says why; it is written in both cases.
  virtual Code update_exec(ExecHandle exec, GraphHandle graph, ExecUpdate* update) = 0;
  // A kernel, copy or memset that is not enabled does nothing; what depends on it runs.
  // Requirements as for set_kernel_node().
  virtual Code set_node_enabled(ExecHandle exec, NodeHandle node, bool is_enabled) = 0;
  virtual Code node_enabled(ExecHandle exec, NodeHandle node, bool* is_enabled) = 0;

  // The calling thread's last error; `take` also clears it. Source: cudaPeekAtLastError,
  // cudaGetLastError.
  virtual Code peek_last_error() noexcept = 0;
  virtual Code take_last_error() noexcept = 0;
};

}  // namespace cgtree
