// Finds what a handle names and orders work between threads.
#include "interop/host/runtime.h"

#include <atomic>

namespace cgtree::host {
namespace {

bool orders_with_legacy(const HostStream& stream) {
  return stream.kind == StreamKind::kBlocking && stream.device == 0;
}

}  // namespace

Runtime::Runtime()
    : legacy_(std::make_shared<HostStream>(StreamHandle::kLegacy, 0, StreamKind::kBlocking)) {
}

ThreadState& Runtime::this_thread() {
  static std::atomic<std::uint64_t> threads{0};
  static thread_local ThreadState state{.id = ++threads};
  return state;
}

std::shared_ptr<HostStream> Runtime::find_stream(StreamHandle handle) {
  if (handle == StreamHandle::kNull || handle == StreamHandle::kLegacy) return legacy_;
  if (handle != StreamHandle::kPerThread) {
    const auto found = streams.find(handle);
    return found == streams.end() ? nullptr : found->second;
  }
  ThreadState& thread = this_thread();
  if (thread.stream == nullptr) {
    auto stream = std::make_shared<HostStream>(handle, 0, StreamKind::kBlocking);
    std::erase_if(thread_streams_, [](const auto& other) { return other.expired(); });
    thread_streams_.push_back(stream);
    thread.stream = std::move(stream);
  }
  return thread.stream;
}

std::vector<std::shared_ptr<HostStream>> Runtime::streams_of(int device) const {
  std::vector<std::shared_ptr<HostStream>> found;
  for (const auto& [handle, stream] : streams) {
    if (stream->device == device) found.push_back(stream);
  }
  if (device != 0) return found;
  found.push_back(legacy_);
  for (const auto& weak : thread_streams_) {
    if (auto stream = weak.lock()) found.push_back(std::move(stream));
  }
  return found;
}

const Graph* Runtime::find_graph_of(NodeHandle node) const {
  const auto found = graphs.find(Graph::graph_of(node));
  if (found != graphs.end()) return found->second.get();
  return captures.find_graph(Graph::graph_of(node));
}

bool Runtime::is_idle(HostStream& stream) {
  const std::unique_lock order(stream.order, std::try_to_lock);
  if (!order.owns_lock() || !stream.is_legacy()) return order.owns_lock();
  return std::unique_lock(legacy_gate_, std::try_to_lock).owns_lock();
}

Runtime::Turn::Turn(Runtime& runtime, HostStream& stream) {
  if (stream.is_legacy()) {
    order_ = std::unique_lock(stream.order);
    as_legacy_ = std::unique_lock(runtime.legacy_gate_);
    return;
  }
  if (orders_with_legacy(stream)) {
    // Passing through the legacy stream's order lets legacy work that already waits go first.
    std::unique_lock(runtime.legacy_->order).unlock();
    with_legacy_ = std::shared_lock(runtime.legacy_gate_);
  }
  order_ = std::unique_lock(stream.order);
}

}  // namespace cgtree::host
