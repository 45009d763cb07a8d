// StreamEvents: reports when the work submitted to a stream so far has ended.
#pragma once

#include <cstdint>
#include <optional>

#include "allocator/pool/segment_source.h"

namespace cgtree {

// An EventId is the device's name of a point in the work of a stream.
using EventId = std::uintptr_t;

// StreamEvents is the part of a device that records and queries events. Implementations:
// DeviceStreamEvents, and the fake device of the allocator's tests.
//
// Thread safety: all functions may be called from any thread. None is called while a capture is
// open that the allocator knows of (DriverGate), except record() for a stream that is about to be
// destroyed. Other captures may be open at any time, and no function may invalidate them.
class StreamEvents {
 public:
  virtual ~StreamEvents() = default;

  // Returns false once the stream has ended.
  virtual bool exists(StreamId /*stream*/) const noexcept { return true; }

  // Returns an event after all work submitted to `stream` so far, or nothing while the stream is
  // part of a capture. Throws DeviceError, also for a stream that no longer exists.
  virtual std::optional<EventId> record(StreamId stream) = 0;

  // Throws DeviceError if the device failed.
  virtual bool is_complete(EventId event) = 0;

  // Blocks the calling thread until the event is complete. Throws DeviceError if the device failed.
  virtual void wait(EventId event) = 0;

  // Ends the event; a later record() may reuse it.
  virtual void give_back(EventId event) noexcept = 0;
};

}  // namespace cgtree
