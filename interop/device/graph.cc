// Graphs, executable graphs and captures over the functions of a device.
#include "interop/device/graph.h"

#include <utility>

#include "base/check.h"
#include "base/log_event.h"
#include "interop/device/graph_api.h"

namespace cgtree {

Graph::Graph(GraphAPI& api, GraphHandle handle)
    : api_(&api), handle_(handle), owner_(nullptr, [&api, handle](const void*) noexcept {
        const Code code = api.destroy_graph(handle);
        if (!ok(code)) log_event(LogLevel::kError, "graph_lost error={}", name(code));
      }) {
}

std::size_t Graph::node_count() const {
  std::vector<NodeHandle> nodes;
  check(api_->graph_nodes(handle_, &nodes), "list the nodes of a graph");
  return nodes.size();
}

NodeHandle Graph::add_root(const KernelFunction& kernel, const LaunchDims& dims,
                           KernelArguments arguments) {
  NodeHandle node = NodeHandle::kNull;
  check(api_->add_root_kernel(handle_, kernel, dims, arguments, &node),
        "add a root node to a graph");
  return node;
}

NodeHandle Graph::add_leaf(const KernelFunction& kernel, const LaunchDims& dims,
                           KernelArguments arguments) {
  NodeHandle node = NodeHandle::kNull;
  check(api_->add_leaf_kernel(handle_, kernel, dims, arguments, &node),
        "add a leaf node to a graph");
  return node;
}

GraphExec::GraphExec(GraphAPI& api, const Graph& graph, bool frees_on_launch) : api_(&api) {
  check(frees_on_launch ? api.instantiate_freeing(graph.handle(), &handle_)
                        : api.instantiate(graph.handle(), &handle_),
        "instantiate graph");
  owner_ = {nullptr, [&api, handle = handle_](const void*) noexcept {
              const RelaxedCapture relaxed(&api);
              const Code code = api.destroy_exec(handle);
              if (!ok(code)) log_event(LogLevel::kError, "graph_exec_lost error={}", name(code));
            }};
}

Capture::Capture(StreamRef stream, CaptureMode mode) : stream_(stream) {
  (void)stream.graphs().take_last_error();
  const bool is_legacy = stream.handle() == StreamHandle::kLegacy;
  check(stream.graphs().begin_capture(stream.handle(), mode),
        is_legacy ? "begin capture on the legacy stream, which cannot be captured (use another)"
                  : "begin capture");
}

Capture::~Capture() {
  if (!open_) return;
  GraphAPI& api = stream_.graphs();
  GraphHandle dropped = GraphHandle::kNull;  // a Graph would allocate
  if (ok(api.end_capture(stream_.handle(), &dropped))) (void)api.destroy_graph(dropped);
  (void)api.take_last_error();
}

Code Capture::end(Graph* graph) {
  GraphAPI& api = stream_.graphs();
  open_ = false;
  const Code pending = api.peek_last_error();
  GraphHandle handle = GraphHandle::kNull;
  const Code code = api.end_capture(stream_.handle(), &handle);
  (void)api.take_last_error();
  if (!ok(code)) return code;
  Graph captured(api, handle);
  if (ok(pending)) *graph = std::move(captured);
  return pending;
}

}  // namespace cgtree
