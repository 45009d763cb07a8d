// StreamProgress: the progress of the streams of a device, at the cost of few events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "allocator/segments/driver_gate.h"
#include "allocator/segments/stream_events.h"
#include "base/condition.h"
#include "base/mutex.h"

namespace cgtree {

// A StreamPoint represents all work submitted to a stream before the point was taken.
struct StreamPoint {
  StreamId stream = 0;
  std::uint64_t number = 0;  // the number of the event that covers it, from 1; 0 for no work

  friend bool operator==(const StreamPoint&, const StreamPoint&) = default;
};

// A StreamProgress reports whether a StreamPoint is complete. Taking a point does not call the
// device: the point is the number of the stream's next event. The next poll() records that event,
// which covers all points taken since the previous one.
//
// Example: three blocks are freed after work on stream 7, whose last event was number 4. All three
// get the point {7, 5}. poll() records event 5 on the stream; a later poll() finds it complete, and
// with it all three points.
//
// Invariants, per stream: completed <= begun. A pending event that is not done has a number above
// `completed`, because events complete in the order of their numbers: an event with waiting threads
// stays pending, so that no later event completes its points, which may belong to another stream.
//
// A failed event of one stream does not prevent the examination of others. If it was destroyed
// without retire(), its points stay open.
//
// A retired stream is still named by holders of memory that it used: blocks that they free get the
// point of its last event. It is forgotten when that point is complete.
//
// Thread safety: all functions may be called from any thread. No lock is held while an event is
// recorded, which blocks while the queue of the stream is full, nor during a wait for one: a full
// stream stalls one polling thread, and the others skip it. Queries do not block.
class StreamProgress {
 public:
  // Without `events` no point is ever known to be complete. Both must outlive this object.
  StreamProgress(StreamEvents* events, DriverGate& gate) : events_(events), gate_(gate) {}
  ~StreamProgress();
  StreamProgress(const StreamProgress&) = delete;
  StreamProgress& operator=(const StreamProgress&) = delete;

  // Must be called before a stream gets work that points will represent, so that a last event is
  // recorded at its end.
  void begin(StreamId stream) noexcept;

  // Returns a point after all work submitted to `stream` so far. If host memory has run out, the
  // point is never complete.
  StreamPoint now(StreamId stream) noexcept;

  // Returns true if the point is known to be complete. Does not call the device.
  bool is_complete(const StreamPoint& point) const noexcept;

  // Records an event for each stream with uncovered points, and queries the pending events. Does
  // nothing while the gate is held. A stream that captures is left for a later poll. A failure of
  // the device is logged once for each stream, and the points of that stream stay open.
  void poll() noexcept;

  // Waits for all points taken so far. Returns false if the gate is held, and if a stream captures
  // or the device failed for it; the other streams have then been waited for.
  bool wait_all() noexcept;

  // Records an event that covers the points of the stream, even while the gate is held.
  void cover(StreamId stream) noexcept;

  // Must be called before a stream is destroyed; no later event is recorded on it. A last event
  // covers its points.
  void retire(StreamId stream) noexcept;

  // Returns the id of the stream for calls of a source: the stream, or kIdle if it was retired,
  // after waiting for its last event. Requires: the thread is inside the gate.
  StreamId in_source(StreamId stream) noexcept;

  std::size_t pending_events() const;

 private:
  using Lock = std::unique_lock<Mutex<LockRank::kProgress>>;

  struct Event {
    std::optional<EventId> id;  // nothing while a thread records it
    bool is_done = false;       // kept only for threads that still wait for it
    std::size_t waits = 0;      // number of waiting threads
  };

  struct Stream {
    std::uint64_t begun = 0;      // number of the last event that was recorded, or is being
                                  // recorded
    std::uint64_t completed = 0;  // this event and all before it have ended
    bool is_asked = false;        // some points need the event `begun + 1`
    bool has_failed = false;      // the last call for it failed, which has been logged
    bool is_retiring = false;     // retire() is about to record its last event
    bool is_retired = false;
    std::size_t uses = 0;  // threads that use it and have released the lock meanwhile
    std::map<std::uint64_t, Event> pending;  // by number

    bool has_recorded(std::uint64_t last) const;
  };
  // While a Use lives, the stream is not forgotten. Made and ended with the lock held.
  class Use {
   public:
    explicit Use(Stream& stream) noexcept : stream_(stream) { ++stream_.uses; }
    ~Use() { --stream_.uses; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Stream& stream_;
  };

  Stream* find_or_make(StreamId id);
  void forget_ended() noexcept;
  bool record(Lock& lock, StreamId id, Stream& stream);
  void look_at(Lock& lock, StreamId id, Stream& stream) noexcept;
  void query(Stream& stream);
  bool settle(Stream& stream) noexcept;
  bool wait(Lock& lock, StreamId id, Stream& stream) noexcept;
  void cover(Lock& lock, StreamId id, Stream& stream) noexcept;

  StreamEvents* const events_;
  DriverGate& gate_;
  mutable Mutex<LockRank::kProgress> mutex_;  // guards all below
  Condition recorded_;                        // an event was recorded, or a stream retired
  std::map<StreamId, Stream> streams_;
};

}  // namespace cgtree
