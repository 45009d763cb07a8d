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
    : graphs_(StreamRef(device, StreamHandle::kNull).graphs()) {
}

DeviceStreamEvents::~DeviceStreamEvents() {
  for (const EventHandle event : unused_)
    static_cast<void>(graphs_.destroy_event(event));
}

// Keeps room in the list for every event there is, so that give_back() cannot fail.
EventHandle DeviceStreamEvents::take() {
  const std::lock_guard lock(mutex_);
  if (!unused_.empty()) {
    const EventHandle event = unused_.back();
    unused_.pop_back();
    return event;
  }
  if (unused_.capacity() < made_ + 1) unused_.reserve(2 * made_ + 8);
  EventHandle event = EventHandle::kNull;
  check(graphs_.create_event(&event), "create an event");
  ++made_;
  return event;
}

EventId DeviceStreamEvents::record(StreamId stream) {
  const auto event = static_cast<EventId>(take());
  const Code code =
      graphs_.record_event(static_cast<EventHandle>(event), static_cast<StreamHandle>(stream));
  if (!ok(code)) give_back(event);
  check(code, "record an event");
  return event;
}

bool DeviceStreamEvents::is_complete(EventId event) {
  const Code code = graphs_.query_event(static_cast<EventHandle>(event));
  if (code == Code::kNotReady) {
    // CUDA sets the thread's last error even for this code.
    if (graphs_.peek_last_error() == code) static_cast<void>(graphs_.take_last_error());
    return false;
  }
  check(code, "query an event");
  return true;
}

void DeviceStreamEvents::wait(EventId event) {
  check(graphs_.synchronize_event(static_cast<EventHandle>(event)), "wait for an event");
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
