// How far the streams of a device have come, at the price of few events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>

#include "allocator/segments/driver_gate.h"
#include "allocator/segments/stream_events.h"

namespace cgtree {

// All work that had been submitted to a stream when the point was taken.
struct StreamPoint {
  StreamId stream = 0;
  std::uint64_t number = 0;  // of the event of the stream that covers it, from 1; 0: no work
};

// A point costs no call of the device: it is the number of the stream's next event. That event is
// recorded when somebody wants to know, and covers all points taken since the one before.
//
// Invariant, per stream: completed <= recorded; a pending event has a number between.
//
// Threads: any. One lock, held while the device records or answers; waits are made without it.
class StreamProgress {
 public:
  // Without `events` no point is ever known to be complete. Both must outlive it.
  StreamProgress(StreamEvents* events, DriverGate& gate) : events_(events), gate_(gate) {}
  ~StreamProgress();
  StreamProgress(const StreamProgress&) = delete;
  StreamProgress& operator=(const StreamProgress&) = delete;

  // A point after all work submitted to `stream` so far. Where host memory ran out, one that is
  // never complete.
  StreamPoint now(StreamId stream) noexcept;

  // Whether that is known already; asks no device.
  bool is_complete(const StreamPoint& point) const noexcept;

  // Records an event for each stream with points that none covers, and asks for the pending ones.
  // Does nothing while the gate is held. A device that fails is logged, and its points stay open.
  void poll() noexcept;

  // Waits for all points taken so far; false when the gate is held or the device failed.
  bool wait_all() noexcept;

  // Before a stream is destroyed: it is not asked any more. Where its work has ended all its points
  // are complete; else a last event covers them, and where the gate is held none does.
  enum class Work { kHasEnded, kMayBePending };
  void retire(StreamId stream, Work work) noexcept;

  std::size_t pending_events() const;

 private:
  struct Event {
    std::uint64_t number = 0;
    EventId id = 0;
  };
  using Events = std::deque<Event>;  // by number

  struct Stream {
    std::uint64_t recorded = 0;   // number of the last event
    std::uint64_t completed = 0;  // of the last one known to be complete
    bool is_asked = false;        // points need the event `recorded + 1`
    Events pending;               // beside those that a thread waits for
  };

  void record_asked();
  void record(StreamId id, Stream& stream);
  void complete(Stream& stream, const Event& event) noexcept;
  std::map<StreamId, Events> take_pending();

  StreamEvents* const events_;
  DriverGate& gate_;
  mutable std::mutex mutex_;  // guards all below
  std::map<StreamId, Stream> streams_;
};

}  // namespace cgtree
