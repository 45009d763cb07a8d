// DeviceStreamEvents: the allocator's queries about the streams of a device.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "allocator/segments/stream_events.h"
#include "base/mutex.h"
#include "interop/device/device.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream.h"

namespace cgtree {

// Returns the allocator's id of a stream. The stream may be of any device: the id determines which.
// Throws InvalidArgument for the per-thread default stream, which differs by thread, so that only
// the thread that used the memory could tell when the use has ended; DeviceError.
StreamId stream_id(StreamRef stream);
// The same for a frequent path: see recent_identity_of().
StreamId recent_stream_id(StreamRef stream);

// A DeviceStreamEvents records and queries events through GraphAPI, for the streams of all devices
// that have events. It keeps the events that are given back and reuses them. It does not disturb
// foreign captures: it calls the device in relaxed capture mode, does not touch capturing streams,
// and leaves the thread's last error unchanged.
class DeviceStreamEvents final : public StreamEvents {
 public:
  // Throws InvalidArgument if the device has no events.
  explicit DeviceStreamEvents(Device device);
  ~DeviceStreamEvents() override;

  bool exists(StreamId stream) const noexcept override;
  std::optional<EventId> record(StreamId stream) override;
  bool is_complete(EventId event) override;
  void wait(EventId event) override;
  void give_back(EventId event) noexcept override;

 private:
  // An event belongs to one device. Its address is the EventId.
  struct Event {
    GraphAPI& graphs;
    const Device device;
    EventHandle handle = EventHandle::kNull;
  };

  static Event& event_of(EventId id) noexcept { return *reinterpret_cast<Event*>(id); }
  Event& take(StreamRef stream);

  mutable Mutex<LockRank::kLeaf> mutex_;  // guards all below
  std::deque<Event> made_;
  std::vector<Event*> unused_;
};

}  // namespace cgtree
