// DeviceStreamEvents: the events of a device, for the allocator.
#pragma once

#include <mutex>
#include <vector>

#include "allocator/segments/stream_events.h"
#include "interop/device/device.h"
#include "interop/device/graph_api.h"

namespace cgtree {

// A DeviceStreamEvents records and queries events through GraphAPI. It keeps the events that are
// given back and uses them again.
class DeviceStreamEvents final : public StreamEvents {
 public:
  // Throws InvalidArgument if the device has no events.
  explicit DeviceStreamEvents(Device device);
  ~DeviceStreamEvents() override;

  EventId record(StreamId stream) override;
  bool is_complete(EventId event) override;
  void wait(EventId event) override;
  void give_back(EventId event) noexcept override;

  std::size_t events_made() const;

 private:
  EventHandle take();

  GraphAPI& graphs_;
  mutable std::mutex mutex_;  // guards all below
  std::vector<EventHandle> unused_;
  std::size_t made_ = 0;
};

}  // namespace cgtree
