// Graphs, executable graphs and captures over the functions of a device.
#include "interop/device/graph.h"

#include <utility>

#include "base/check.h"
#include "base/log_event.h"
#include "interop/device/graph_api.h"

namespace cgtree {

Graph::~Graph() {
  if (api_ == nullptr || handle_ == GraphHandle::kNull) return;
  const Code code = api_->destroy_graph(handle_);
  if (!ok(code)) log_event(LogLevel::kError, "graph_lost error={}", name(code));
}

Graph::Graph(Graph&& other) noexcept
    : api_(other.api_), handle_(std::exchange(other.handle_, GraphHandle::kNull)) {
}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(handle_, other.handle_);
  return *this;
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

GraphExec::GraphExec(GraphAPI& api, const Graph& graph) : api_(&api) {
  check(api.instantiate(graph.handle(), &handle_), "instantiate graph");
}

GraphExec::~GraphExec() {
  if (api_ == nullptr || handle_ == ExecHandle::kNull) return;
  const RelaxedCapture relaxed(api_);
  const Code code = api_->destroy_exec(handle_);
  if (!ok(code)) log_event(LogLevel::kError, "graph_exec_lost error={}", name(code));
}

GraphExec::GraphExec(GraphExec&& other) noexcept
    : api_(other.api_), handle_(std::exchange(other.handle_, ExecHandle::kNull)) {
}

GraphExec& GraphExec::operator=(GraphExec&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(handle_, other.handle_);
  return *this;
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
  Graph dropped;
  (void)end(&dropped);
}

Code Capture::end(Graph* graph) {
  GraphAPI& api = stream_.graphs();
  open_ = false;
  const Code pending = api.peek_last_error();
  GraphHandle handle = GraphHandle::kNull;
  const Code code = api.end_capture(stream_.handle(), &handle);
  (void)api.take_last_error();
  Graph captured(api, handle);
  if (!ok(code)) return code;
  if (!ok(pending)) return pending;
  *graph = std::move(captured);
  return code;
}

}  // namespace cgtree
