// GraphAPI: the optional capability of a device to capture work into graphs and to launch them.
//
// The functions are CUDA's, one to one, and return CUDA's numbers (code.h), so that the cuda device
// is a thin shim and the host device can be tested against it. Out-parameters are written on
// success only.
//
// Thread safety: as in CUDA. Functions on different objects may be called from any thread; a graph
// or an executable graph is used by one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "interop/device/code.h"
#include "interop/device/handles.h"
#include "interop/device/kernel_function.h"

namespace cgtree {

// Source: cudaStreamCaptureStatus.
enum class CaptureStatus { kNone = 0, kActive = 1, kInvalidated = 2 };

// kAllocation and kFree are of stream-ordered memory.
enum class NodeType {
  kKernel,
  kMemcpy,
  kMemset,
  kHost,
  kEmpty,
  kOther,
  kChildGraph,
  kAllocation,
  kFree
};

// `to` begins when `from` is done.
struct GraphEdge {
  NodeHandle from;
  NodeHandle to;

  auto operator<=>(const GraphEdge&) const = default;
};

struct NodeContents;                         // node_contents.h
struct NodePatch;                            // node_contents.h
enum class ConditionHandle : std::uint64_t;  // condition.h
enum class ConditionalKind;                  // condition.h

// The capture that a stream is in.
struct CaptureInfo {
  CaptureStatus status = CaptureStatus::kNone;
  std::uint64_t id = 0;                    // unique per capture; 0 when there is none
  std::vector<NodeHandle> dependencies;    // of the next node on the stream
  GraphHandle graph = GraphHandle::kNull;  // the graph being made; its nodes may be listed
};

// A GraphAPI belongs to a DeviceAPI and serves all its devices.
class GraphAPI {
 public:
  virtual ~GraphAPI() = default;

  // The next six functions are for events, which have no timing. Recording and waiting inside a
  // capture become edges of the graph.
  virtual Code create_event(EventHandle* event) = 0;
  virtual Code destroy_event(EventHandle event) = 0;
  virtual Code record_event(EventHandle event, StreamHandle stream) = 0;
  virtual Code query_event(EventHandle event) = 0;  // kNotReady while pending
  virtual Code synchronize_event(EventHandle event) = 0;
  virtual Code wait_event(StreamHandle stream, EventHandle event) = 0;

  // The next three functions enqueue work. While `stream` captures, they add a node instead.
  virtual Code launch_kernel(StreamHandle stream, const KernelFunction& kernel,
                             const LaunchDims& dims, KernelArguments arguments) = 0;
  virtual Code memset(StreamHandle stream, void* destination, std::uint8_t value,
                      std::size_t bytes) = 0;
  virtual Code launch_host_function(StreamHandle stream, void (*function)(void*), void* data) = 0;

  // The next two functions allocate and free memory in the order of `stream`. While it captures,
  // they add a node instead: the memory has its address at once and in each launch, and its
  // contents from a launch until it is freed. Freeing twice is kInvalidValue. They return
  // kNotSupported unless kSupportsMemoryPools is 1. Requires: bytes > 0. Source: cudaMallocAsync,
  // cudaFreeAsync.
  virtual Code allocate_in_order(StreamHandle stream, std::size_t bytes, void** data);
  virtual Code free_in_order(StreamHandle stream, void* data);

  // The next three functions begin a capture, end it, and describe it. Ending an invalidated
  // capture returns its error, and no graph.
  virtual Code begin_capture(StreamHandle stream, CaptureMode mode) = 0;
  virtual Code end_capture(StreamHandle stream, GraphHandle* graph) = 0;
  virtual Code capture_info(StreamHandle stream, CaptureInfo* info) = 0;
  // Sets this thread's mode and writes the previous one. Source:
  // cudaThreadExchangeStreamCaptureMode.
  virtual Code exchange_capture_mode(CaptureMode* mode) = 0;

  // The next five functions are for graphs. Nodes and edges are written in the device's own order.
  virtual Code destroy_graph(GraphHandle graph) = 0;
  virtual Code graph_nodes(GraphHandle graph, std::vector<NodeHandle>* nodes) = 0;
  virtual Code graph_edges(GraphHandle graph, std::vector<GraphEdge>* edges) = 0;
  virtual Code node_type(NodeHandle node, NodeType* type) = 0;
  virtual Code node_dependencies(NodeHandle node, std::vector<NodeHandle>* dependencies) = 0;
  // Writes the contents of each node, in the order of graph_nodes(). Success does not mean that all
  // contents could be read: see NodeContents::is_decoded. The calling thread's last error is
  // unchanged. Returns kNotSupported if this kind of device cannot read nodes.
  virtual Code read_nodes(GraphHandle graph, std::vector<NodeContents>* contents);
  // Writes a file in the language of Graphviz. The description of a node depends on the device.
  virtual Code write_dot(GraphHandle graph, const char* path) = 0;
  // Adds a kernel before all nodes: every node without dependencies depends on it from now on.
  // Requires that the capture of `graph` has ended.
  virtual Code add_root_kernel(GraphHandle graph, const KernelFunction& kernel,
                               const LaunchDims& dims, KernelArguments arguments,
                               NodeHandle* node) = 0;
  // Adds a kernel after all nodes: it depends on every node without dependents.
  virtual Code add_leaf_kernel(GraphHandle graph, const KernelFunction& kernel,
                               const LaunchDims& dims, KernelArguments arguments,
                               NodeHandle* node) = 0;

  // The next three functions are for executable graphs. Launches that are enqueued when one is
  // destroyed still run. A graph that allocates or frees in order has one executable graph at a
  // time. A launch returns kInvalidValue while memory that it allocates is left from the previous
  // launch. Destroying a graph, or an executable graph, frees no memory.
  virtual Code instantiate(GraphHandle graph, ExecHandle* exec) = 0;
  virtual Code destroy_exec(ExecHandle exec) = 0;
  virtual Code launch(ExecHandle exec, StreamHandle stream) = 0;
  // As instantiate(), but each launch first frees the memory that the previous launch left. Source:
  // cudaGraphInstantiateFlagAutoFreeOnLaunch.
  virtual Code instantiate_freeing(GraphHandle graph, ExecHandle* exec);
  // Changes a kernel node of `exec`. Requires that `node` belongs to the graph that `exec` was made
  // from, and that the graph still exists. Enqueued launches keep the old arguments.
  virtual Code set_kernel_node(ExecHandle exec, NodeHandle node, const KernelFunction& kernel,
                               const LaunchDims& dims, KernelArguments arguments) = 0;
  // Prepares `node` for set_node(). The calling thread's last error is unchanged. Returns
  // kNotSupported for a node whose addresses cannot be changed.
  virtual Code prepare_patch(NodeHandle node, NodePatch* patch);
  // Writes the contents of `patch` to the node of `exec`; the rest of the node is unchanged.
  // Requirements, and the effect on enqueued launches, as for set_kernel_node().
  virtual Code set_node(ExecHandle exec, const NodePatch& patch);
  // Makes later launches run `node`, or treat it as empty. Requires as set_kernel_node(). Returns
  // an error for nodes that run other graphs. Source: cudaGraphNodeSetEnabled.
  virtual Code enable_node(ExecHandle exec, NodeHandle node, bool is_enabled);

  // Returns whether set_node() can make an executable graph of `a` do the work of `b`, node by node
  // in the order of graph_nodes(). The last error is unchanged. Requires: both graphs are of the
  // current device.
  virtual bool are_alike(GraphHandle a, GraphHandle b);

  // The next four functions are for conditional nodes: see condition.h. They return kNotSupported
  // unless kSupportsConditionalNodes is 1.

  // Makes a condition for one node of `graph`, whose capture may be open. Its value is undefined
  // until a kernel has set it, in each launch.
  virtual Code create_condition(GraphHandle graph, ConditionHandle* condition);
  // Adds a node with `size` empty bodies: one or two for kIf, one for kWhile, any for kSwitch. They
  // belong to the node, and are not destroyed. Returns kInvalidValue for other sizes, for a
  // condition of another graph, and for one that a node already has.
  virtual Code add_conditional(GraphHandle graph, std::span<const NodeHandle> dependencies,
                               ConditionHandle condition, ConditionalKind kind, std::size_t size,
                               NodeHandle* node, std::vector<GraphHandle>* bodies);
  // Begins a capture whose nodes are added to `graph`, a body; end_capture() returns the same
  // handle. Returns as begin_capture(), and kIllegalState while another capture to `graph` is open.
  virtual Code begin_capture_to(StreamHandle stream, GraphHandle graph, CaptureMode mode);
  // Makes the next node that is captured on `stream` depend on these nodes alone. Returns
  // kIllegalState for a stream that does not capture.
  virtual Code set_capture_dependencies(StreamHandle stream,
                                        std::span<const NodeHandle> dependencies);

  // The next three functions report the progress of work. They return kNotSupported unless
  // kSupportsProgress is 1.

  // Makes an event that also records the time at which it happened; otherwise as create_event().
  virtual Code create_timed_event(EventHandle* event);
  // Writes the time from one event to the other. Returns kNotReady while an event is pending, and
  // kInvalidResourceHandle for an event that has no time or was never recorded. Source:
  // cudaEventElapsedTime.
  virtual Code elapsed(EventHandle from, EventHandle to, std::chrono::nanoseconds* time);
  // Adds a kernel to a graph, which runs after all of `after` and before all of `before`. Existing
  // executable graphs of the graph are unchanged. Requires: the device of the graph is current, the
  // capture of the graph has ended, and in the order of graph_nodes() no node of `before` precedes
  // one of `after`.
  virtual Code insert_kernel(GraphHandle graph, std::span<const NodeHandle> after,
                             std::span<const NodeHandle> before, const KernelFunction& kernel,
                             const LaunchDims& dims, KernelArguments arguments, NodeHandle* node);

  // The next two return the calling thread's last error; `take` also clears it. Source:
  // cudaPeekAtLastError, cudaGetLastError.
  virtual Code peek_last_error() noexcept = 0;
  virtual Code take_last_error() noexcept = 0;
};

// A RelaxedCapture puts this thread into relaxed capture mode while it lives.
//
// Allocating and freeing memory and destroying executable graphs are "potentially unsafe" calls:
// while this thread captures they return 900 and invalidate the capture. In relaxed mode they are
// allowed; none of them touches a stream. Source: cudaThreadExchangeStreamCaptureMode.
class RelaxedCapture {
 public:
  // If `graphs` is null, the scope does nothing.
  explicit RelaxedCapture(GraphAPI* graphs) noexcept : graphs_(graphs) { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() noexcept {
    if (graphs_ != nullptr) static_cast<void>(graphs_->exchange_capture_mode(&mode_));
  }

  GraphAPI* graphs_;
  CaptureMode mode_ = CaptureMode::kRelaxed;  // while the scope lives: the mode to restore
};

}  // namespace cgtree
