// DeviceStreamEvents: what the allocator asks a device about its streams.
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

// Returns what the allocator knows a stream by. The stream may be of any device: the id tells
// which. Throws InvalidArgument for the per-thread default stream, which is another one on each
// thread, so that no thread but the one that used the memory could say when the use has ended;
// DeviceError.
StreamId stream_id(StreamRef stream);
// The same for a path that is taken often: see recent_identity_of().
StreamId recent_stream_id(StreamRef stream);

// A DeviceStreamEvents records and queries events through GraphAPI, for the streams of all devices
// that have events. It keeps the events that are given back and uses them again. Captures of others
// do not notice it: it calls the device in relaxed capture mode, leaves streams alone while they
// capture, and leaves the thread's last error as it was.
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
