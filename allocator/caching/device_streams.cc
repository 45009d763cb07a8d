// Records and queries events, and asks about the streams and nodes of a capture.
#include "allocator/caching/device_streams.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "interop/device/stream.h"

namespace cgtree {
namespace {

std::vector<NodeId> ids_of(const std::vector<NodeHandle>& nodes) {
  std::vector<NodeId> ids;
  ids.reserve(nodes.size());
  for (const NodeHandle node : nodes)
    ids.push_back(static_cast<NodeId>(node));
  return ids;
}

}  // namespace

DeviceStreamEvents::DeviceStreamEvents(Device device)
    : device_(device), graphs_(StreamRef(device, StreamHandle::kNull).graphs()) {
}

DeviceStreamEvents::~DeviceStreamEvents() {
  for (const EventHandle event : unused_)
    static_cast<void>(graphs_.destroy_event(event));
}

// Keeps room in the list for every event there is, so that give_back() cannot fail. An event is
// made without the lock: while any stream is full, the driver makes none.
EventHandle DeviceStreamEvents::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!unused_.empty()) {
      const EventHandle event = unused_.back();
      unused_.pop_back();
      return event;
    }
    if (unused_.capacity() < made_ + 1) unused_.reserve(2 * made_ + 8);
    ++made_;
  }
  EventHandle event = EventHandle::kNull;
  const DeviceScope scope(device_api(device_), device_.id);  // an event belongs to one device
  const Code code = graphs_.create_event(&event);
  if (!ok(code)) {
    const std::lock_guard lock(mutex_);
    --made_;
  }
  expect(code, "create an event");
  return event;
}

// Throws for a failure, without leaving it as the thread's last error. The capture that a caller
// may have open did not cause it, so it is no CaptureError.
void DeviceStreamEvents::expect(Code code, const char* call) {
  if (ok(code)) return;
  if (graphs_.peek_last_error() == code) static_cast<void>(graphs_.take_last_error());
  throw DeviceError(static_cast<int>(code), fmt::format("{} failed with {}", call, name(code)));
}

// Also returns true for the legacy stream while a stream is captured that is ordered with it.
bool DeviceStreamEvents::is_captured(StreamHandle stream) {
  CaptureInfo info;
  const Code code = graphs_.capture_info(stream, &info);
  if (code == Code::kStreamCaptureImplicit) {
    if (graphs_.peek_last_error() == code) static_cast<void>(graphs_.take_last_error());
    return true;
  }
  expect(code, "query whether a stream captures");
  return info.status != CaptureStatus::kNone;
}

void DeviceStreamEvents::expect_one_stream(StreamId stream) const {
  if (static_cast<StreamHandle>(stream) != StreamHandle::kPerThread) return;
  throw InvalidArgument(
      "the per-thread default stream is another stream on each thread, and its memory would be "
      "freed on the wrong one; give a stream that was created, or the legacy stream");
}

std::optional<EventId> DeviceStreamEvents::record(StreamId stream) {
  const RelaxedCapture relaxed(&graphs_);
  const auto handle = static_cast<StreamHandle>(stream);
  if (is_captured(handle)) return std::nullopt;
  const auto event = static_cast<EventId>(take());
  try {
    expect(graphs_.record_event(static_cast<EventHandle>(event), handle), "record an event");
    if (!is_captured(handle)) return event;
  } catch (...) {
    give_back(event);
    throw;
  }
  give_back(event);  // a capture began meanwhile, and the event may belong to it
  return std::nullopt;
}

bool DeviceStreamEvents::is_complete(EventId event) {
  const RelaxedCapture relaxed(&graphs_);
  const Code code = graphs_.query_event(static_cast<EventHandle>(event));
  if (code == Code::kNotReady) {
    // CUDA sets the thread's last error even for this code.
    if (graphs_.peek_last_error() == code) static_cast<void>(graphs_.take_last_error());
    return false;
  }
  expect(code, "query an event");
  return true;
}

void DeviceStreamEvents::wait(EventId event) {
  const RelaxedCapture relaxed(&graphs_);
  expect(graphs_.synchronize_event(static_cast<EventHandle>(event)), "wait for an event");
}

void DeviceStreamEvents::give_back(EventId event) noexcept {
  const std::lock_guard lock(mutex_);
  unused_.push_back(static_cast<EventHandle>(event));
}

std::size_t DeviceStreamEvents::events_made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

DeviceCaptureDag::DeviceCaptureDag(StreamRef origin) : graphs_(origin.graphs()) {
  CaptureInfo info;
  check(graphs_.capture_info(origin.handle(), &info), "ask a stream about its capture");
  if (info.status != CaptureStatus::kActive) {
    throw InvalidArgument(fmt::format("the stream {:#x} does not capture; begin the capture first",
                                      static_cast<StreamId>(origin.handle())));
  }
  capture_ = info.id;
}

std::optional<std::vector<NodeId>> DeviceCaptureDag::terminals(StreamId stream) {
  CaptureInfo info;
  check(graphs_.capture_info(static_cast<StreamHandle>(stream), &info),
        "ask a stream about its capture");
  if (info.status != CaptureStatus::kActive || info.id != capture_) return std::nullopt;
  return ids_of(info.dependencies);
}

std::vector<NodeId> DeviceCaptureDag::dependencies(NodeId node) {
  std::vector<NodeHandle> nodes;
  check(graphs_.node_dependencies(static_cast<NodeHandle>(node), &nodes),
        "ask a node for its dependencies");
  return ids_of(nodes);
}

}  // namespace cgtree
