// PlainMemory: memory that calls of contexts use and that no context owns, such as a KV cache.
//
// Calls report the plain memory that they read and write: inputs, buffers and bindings. Two
// contexts are neighbours if they use the same bytes and one of them writes. From then on, a call
// that uses these bytes waits for the neighbour's last use, and notes its own end.
//
//   prefill(x, cache)   on stream A; the cache is written: an event is recorded on A
//   decode(cache)       on stream B, which waits for that event; an event is recorded on B
//   prefill(x, cache)   A waits for the event of B
//
// A replay whose context has no neighbour does nothing for this, unless an input has moved.
//
// A call is ordered after calls of neighbours that returned before it began. Simultaneous calls of
// two threads are unordered.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "allocator/pool/block.h"
#include "base/mutex.h"
#include "cgtree/memory/context_stream.h"
#include "interop/device/device_api.h"
#include "interop/device/stream.h"

namespace cgtree {

class PlainMemoryUser;

struct PlainUse {
  Range range;
  bool is_written = false;
};

// A PlainMemory knows which contexts use which plain memory. One object serves all devices of a
// kind, whose addresses differ.
class PlainMemory {
 public:
  // Returns the object for the devices of this kind.
  static std::shared_ptr<PlainMemory> of(DeviceAPI& api);

 private:
  friend class PlainMemoryUser;
  Mutex<LockRank::kDeclared> mutex_;     // guards all below, and members of users that say so
  std::vector<PlainMemoryUser*> users_;  // all that exist
};

// A PlainMemoryUser represents one context.
//
// Thread safety: used by the thread that is inside the context; other users read it under the mutex
// of the PlainMemory.
class PlainMemoryUser {
 public:
  // `stream`: of the context; borrowed.
  explicit PlainMemoryUser(ContextStream& stream);
  // Requires: all work of the context has ended.
  ~PlainMemoryUser();
  PlainMemoryUser(const PlainMemoryUser&) = delete;
  PlainMemoryUser& operator=(const PlainMemoryUser&) = delete;

  // Returns true if note() was called for these bytes. The bytes of earlier calls may be forgotten.
  bool is_recent(const PlainUse& use) const noexcept {
    const PlainUse* const recent = &recent_[place_of(use)];
    for (int i = 0; i < kAlike; ++i) {
      if (recent[i].range.address == use.range.address &&
          recent[i].range.bytes == use.range.bytes && recent[i].is_written == use.is_written) {
        return true;
      }
    }
    return false;
  }
  // Notes memory that a call is about to use. Contexts that become neighbours by it have a reader
  // from then on (ContextStream::has_readers()). Throws std::bad_alloc.
  void note(const PlainUse& use);

  // Makes work enqueued on `stream` from now on wait for the last uses of these bytes by
  // neighbours. Returns whether there are any; end() must then follow the work. `captured`: a
  // stream whose capture the work joins, or null; it waits for neighbours whose stream is in that
  // capture. Throws CaptureError if the end of a neighbour's use is unknown and its stream is in
  // another capture; DeviceError, std::bad_alloc.
  bool begin(std::span<const PlainUse> uses, StreamRef stream, StreamRef captured = {});
  // Returns whether end() must still follow a begin().
  bool is_open() const noexcept { return !open_.empty(); }
  // Says that the work is enqueued on the context's stream. `in_graph`: it is part of a graph of
  // the caller's, whose launches follow that stream. Throws DeviceError, std::bad_alloc.
  void end(bool in_graph = false);

 private:
  // A Point marks the end of a call. Constant once it is shared.
  struct Point {
    explicit Point(const ContextStream& stream) { stream.record_end(event); }
    Event event;
  };
  // A range of bytes with the same uses. A null point stands for the end of the context's stream.
  struct Span {
    std::uintptr_t end;
    std::shared_ptr<const Point> last;
  };
  // Disjoint spans that do not touch, by their beginning. Beginnings and ends of read_ and written_
  // change under the mutex on the user's own thread, which reads them without it.
  class Spans {
   public:
    bool contains(Range range) const noexcept;
    bool overlaps(Range range) const noexcept;
    void add(Range range);
    // Calls visit(range, last) for each span that overlaps the range, with the common bytes. Writes
    // only `last`: the user's own thread may read the spans meanwhile.
    template <typename Visit>
    void for_each_in(Range range, const Visit& visit);

   private:
    using Map = std::map<std::uintptr_t, Span>;
    // Returns the first span that overlaps the range, or the end.
    template <typename AnyMap>
    static auto first_in(AnyMap& spans, Range range) noexcept;
    Map spans_;
  };
  // The context's stream, for other threads, while it exists.
  struct Anchor {
    Mutex<LockRank::kKeepers> mutex;
    const ContextStream* stream;  // guarded by the mutex; null once the context has ended
  };
  struct Wait {
    std::shared_ptr<const Point> point;  // or else the end of the stream of `user`
    PlainMemoryUser* user;
    std::shared_ptr<Anchor> anchor;
    PlainUse use;
  };

  // Returns the first of the kAlike places for the use in `recent_`. Addresses of memory are
  // multiples of large powers of two: a product mixes their bits.
  static std::size_t place_of(const PlainUse& use) noexcept {
    return ((use.range.address * 0x9E3779B97F4A7C15) >> (64 - kRecentBits)) * kAlike;
  }
  void remember(const PlainUse& use) noexcept;
  bool is_known(const PlainUse& use) const noexcept {
    return (use.is_written ? written_ : read_).contains(use.range);
  }
  bool is_shared(const PlainUse& use) const noexcept {
    return (use.is_written ? shared_writes_ : shared_reads_).overlaps(use.range);
  }
  void note_neighbour() noexcept;
  std::size_t count_points();
  void join_points();
  void collect(const PlainUse& use, StreamRef stream, std::vector<Wait>& waits) const;
  void wait(const Wait& wait, StreamRef stream, StreamRef captured);
  bool is_alone_on(StreamRef stream) const;
  // Calls visit(bytes, last) for each span of this user that a neighbour's use conflicts with.
  template <typename Visit>
  void for_each_conflict(const PlainUse& use, const Visit& visit) {
    written_.for_each_in(use.range, visit);
    if (use.is_written) read_.for_each_in(use.range, visit);
  }

  const std::shared_ptr<PlainMemory> memory_;
  ContextStream& stream_;
  const std::shared_ptr<Anchor> anchor_;
  // Guarded by the mutex of memory_; but see Spans.
  Spans read_;
  Spans written_;        // may also be read
  Spans shared_reads_;   // a neighbour writes them; without points
  Spans shared_writes_;  // a neighbour uses them; without points
  bool has_neighbours_ = false;
  std::size_t points_ = 0;  // made since the last count
  // Used by the thread that is inside the context.
  static constexpr std::size_t kMostRemembered = 16;
  static constexpr std::size_t kMostPoints = 16;  // of this context
  static constexpr int kRecentBits = 9;
  static constexpr int kAlike = 4;
  std::vector<PlainUse> recent_ = std::vector<PlainUse>(std::size_t{kAlike} << kRecentBits);
  std::vector<PlainUse> open_;                            // from begin() to end()
  std::vector<std::shared_ptr<const Point>> waited_for_;  // by the context's stream; a ring
  std::size_t next_waited_for_ = 0;
};

}  // namespace cgtree
