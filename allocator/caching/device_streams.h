// DeviceStreamEvents and DeviceCaptureDag: what the allocator asks a device about its streams.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/caching/capture_order.h"
#include "allocator/segments/stream_events.h"
#include "base/mutex.h"
#include "interop/device/device.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream.h"

namespace cgtree {

// A DeviceStreamEvents records and queries events through GraphAPI. It keeps the events that are
// given back and uses them again. Captures of others do not notice it: it calls the device in
// relaxed capture mode, leaves streams alone while they capture, and leaves the thread's last error
// as it was.
class DeviceStreamEvents final : public StreamEvents {
 public:
  // Throws InvalidArgument if the device has no events.
  explicit DeviceStreamEvents(Device device);
  ~DeviceStreamEvents() override;

  void expect_one_stream(StreamId stream) const override;
  std::optional<EventId> record(StreamId stream) override;
  bool is_complete(EventId event) override;
  void wait(EventId event) override;
  void give_back(EventId event) noexcept override;

  std::size_t events_made() const;

 private:
  EventHandle take();
  bool is_captured(StreamHandle stream);
  void expect(Code code, const char* call);

  const Device device_;
  GraphAPI& graphs_;
  mutable Mutex<LockRank::kEvents> mutex_;  // guards all below
  std::vector<EventHandle> unused_;
  std::size_t made_ = 0;
};

// A DeviceCaptureDag asks the device for the terminals of streams and the dependencies of nodes.
class DeviceCaptureDag final : public CaptureDag {
 public:
  // `origin` is the stream on which the capture was begun. Throws InvalidArgument if it does not
  // capture, and DeviceError.
  explicit DeviceCaptureDag(StreamRef origin);

  std::optional<std::vector<NodeId>> terminals(StreamId stream) override;
  std::vector<NodeId> dependencies(NodeId node) override;

 private:
  GraphAPI& graphs_;
  std::uint64_t capture_ = 0;  // the id of the capture in the process
};

}  // namespace cgtree
