// StreamProgress: how far the streams of a device have come, at the cost of few events.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>

#include "allocator/segments/driver_gate.h"
#include "allocator/segments/stream_events.h"

namespace cgtree {

// A StreamPoint stands for all work that had been submitted to a stream when the point was taken.
struct StreamPoint {
  StreamId stream = 0;
  std::uint64_t number = 0;  // the number of the event that covers it, from 1; 0 for no work

  friend bool operator==(const StreamPoint&, const StreamPoint&) = default;
};

// A StreamProgress tells whether a StreamPoint is complete. Taking a point does not call the
// device: the point is the number of the stream's next event. That event is recorded by the next
// poll(), and covers all points taken since the event before it.
//
// Example: three blocks are freed after work on stream 7, whose last event was number 4. All three
// get the point {7, 5}. poll() records event 5 on the stream; a later poll() finds it complete, and
// with it all three points.
//
// Invariant, per stream: completed <= recorded, and the numbers of pending events lie between them.
//
// A stream whose event fails does not keep the others from being looked at. If it was destroyed
// without retire(), its points stay open until retire() says that its work has ended.
//
// A stream that was retired is named on by those who hold memory that it used: what they free has
// the point of its last event. It is forgotten when that is complete.
//
// Thread safety: all functions may be called from any thread. One lock is held while the device
// records or is queried; waits are made without it.
class StreamProgress {
 public:
  // Without `events` no point is ever known to be complete. Both must outlive this object.
  StreamProgress(StreamEvents* events, DriverGate& gate) : events_(events), gate_(gate) {}
  ~StreamProgress();
  StreamProgress(const StreamProgress&) = delete;
  StreamProgress& operator=(const StreamProgress&) = delete;

  // Must be called before a stream gets work that points will stand for, so that its end leaves a
  // last event.
  void begin(StreamId stream) noexcept;

  // Returns a point after all work submitted to `stream` so far. If host memory has run out, the
  // point is never complete.
  StreamPoint now(StreamId stream) noexcept;

  // Returns true if the point is known to be complete. Does not call the device.
  bool is_complete(const StreamPoint& point) const noexcept;

  // Records an event for each stream with points that no event covers, and queries the pending
  // ones. Does nothing while the gate is held. A stream that captures is left for a later poll. A
  // failure of the device is logged once for each stream, and the points of that stream stay open.
  void poll() noexcept;

  // Waits for all points taken so far. Returns false if the gate is held, and if a stream captures
  // or the device failed for it; then the other streams have been waited for.
  bool wait_all() noexcept;

  // Records an event that covers the points of the stream, while the gate is held too.
  void cover(StreamId stream) noexcept;

  // Must be called before a stream is destroyed; no event is recorded on it from then on. A last
  // event covers its points. With kHasEnded all points of the stream are complete at once,
  // whichever thread took them: for a stream that is gone, with all its work. Returns a point after
  // all work of the stream.
  enum class Work { kHasEnded, kMayBePending };
  StreamPoint retire(StreamId stream, Work work) noexcept;

  // Returns what stands for the stream in calls of a source: the stream, or kIdle if it was
  // retired, after waiting for its last event. Requires: the thread is inside the gate.
  StreamId in_source(StreamId stream) noexcept;

  std::size_t pending_events() const;

 private:
  struct Event {
    std::uint64_t number = 0;
    EventId id = 0;
  };
  using Events = std::deque<Event>;  // by number

  struct Stream {
    std::uint64_t recorded = 0;   // number of the last event
    std::uint64_t completed = 0;  // number of the last event known to be complete
    bool is_asked = false;        // some points need the event `recorded + 1`
    bool has_failed = false;      // the last call for it, which has been logged
    bool is_retired = false;
    std::size_t waiting = 0;  // threads that wait for events which they have taken
    Events pending;           // without those
  };

  Stream* find_or_make(StreamId id);
  void forget_ended() noexcept;
  void cover_locked(StreamId id, Stream& stream) noexcept;
  bool record(StreamId id, Stream& stream);
  void look_at(StreamId id, Stream& stream) noexcept;
  void complete(Stream& stream, const Event& event) noexcept;
  static void take(Stream& stream, Events& taken) noexcept;
  std::map<StreamId, Events> take_all(bool& succeeded);
  bool wait(StreamId id, const Events& taken) noexcept;

  StreamEvents* const events_;
  DriverGate& gate_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable wait_ended_;
  std::map<StreamId, Stream> streams_;
};

}  // namespace cgtree
