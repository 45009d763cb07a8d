// What the allocator needs to know of streams: when the work submitted to them so far is done.
#pragma once

#include <cstdint>

#include "allocator/segments/stream_id.h"

namespace cgtree {

// A point in the work of a stream, as the device knows it.
using EventId = std::uintptr_t;

// Threads: any. No function is called while a capture is open on the device (DriverGate).
class StreamEvents {
 public:
  virtual ~StreamEvents() = default;

  // An event after all work submitted to `stream` so far. Throws DeviceError.
  virtual EventId record(StreamId stream) = 0;

  // Throws DeviceError when the device failed.
  virtual bool is_complete(EventId event) = 0;

  // Blocks the host until it is complete. Throws DeviceError when the device failed.
  virtual void wait(EventId event) = 0;

  // Ends the event; another record() may use it again.
  virtual void give_back(EventId event) noexcept = 0;
};

}  // namespace cgtree
