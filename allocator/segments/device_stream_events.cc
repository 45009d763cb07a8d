// Records and queries the events of a device.
#include "allocator/segments/device_stream_events.h"

#include "base/log.h"
#include "interop/device/stream.h"

namespace cgtree {

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

}  // namespace cgtree
