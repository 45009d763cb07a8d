// Graph, GraphExec and Capture: captured work, its executable form, and an open capture, owned.
#pragma once

#include <cstddef>
#include <memory>

#include "interop/device/graph_api.h"
#include "interop/device/stream.h"

namespace cgtree {

// A Graph is a captured graph. Copies share it, and the last one destroys it.
class Graph {
 public:
  Graph() = default;
  Graph(GraphAPI& api, GraphHandle handle);

  GraphHandle handle() const noexcept { return handle_; }
  std::size_t node_count() const;
  // Adds a kernel that runs before all nodes. Throws DeviceError.
  NodeHandle add_root(const KernelFunction& kernel, const LaunchDims& dims,
                      KernelArguments arguments);
  // Adds a kernel that runs after all nodes. Throws DeviceError.
  NodeHandle add_leaf(const KernelFunction& kernel, const LaunchDims& dims,
                      KernelArguments arguments);

 private:
  GraphAPI* api_ = nullptr;
  GraphHandle handle_ = GraphHandle::kNull;
  std::shared_ptr<const void> owner_;
};

// A GraphExec is an executable graph. Copies share it, and the last one destroys it. Requires that
// the graph it was made from outlives it if its nodes are changed.
class GraphExec {
 public:
  GraphExec() = default;
  // `frees_on_launch`: see GraphAPI::instantiate_freeing(). Throws DeviceError.
  GraphExec(GraphAPI& api, const Graph& graph, bool frees_on_launch = false);

  GraphAPI& api() const noexcept { return *api_; }
  ExecHandle handle() const noexcept { return handle_; }

 private:
  GraphAPI* api_ = nullptr;
  ExecHandle handle_ = ExecHandle::kNull;
  std::shared_ptr<const void> owner_;
};

// A Capture is an open capture on a stream. The destructor ends a capture that was not ended, drops
// the graph and clears the thread's last error, so that the stream stays usable after an exception.
class Capture {
 public:
  // Throws CaptureError.
  Capture(StreamRef stream, CaptureMode mode);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Returns kSuccess and writes the graph, or returns the error. A call that failed without
  // invalidating the capture counts as a failure: the node that it should have added is missing.
  // Source: cudaMemcpyBatchAsync fails with 900 and leaves the capture active.
  Code end(Graph* graph);

 private:
  StreamRef stream_;
  bool open_ = true;
};

}  // namespace cgtree
