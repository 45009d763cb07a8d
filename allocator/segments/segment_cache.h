// The segments of one device: shared by all its pools, within one budget, safe around captures.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "allocator/segments/budget.h"
#include "allocator/segments/call_list.h"
#include "allocator/segments/driver_gate.h"
#include "allocator/segments/deferred_frees.h"
#include "allocator/segments/segment_source.h"
#include "allocator/segments/segment_users.h"
#include "allocator/segments/stream_progress.h"

namespace cgtree {

// All in bytes.
struct SegmentCacheStatistics {
  std::size_t bytes_in_use = 0;  // handed out to pools
  std::size_t bytes_cached = 0;  // freed by pools, not yet given back upstream
  std::size_t bytes_trash = 0;   // of these: given back as soon as no capture is open

  friend bool operator==(const SegmentCacheStatistics&, const SegmentCacheStatistics&) = default;
};

// A cached segment serves a request of exactly its size: on the stream where it was used last at
// once, on another once the work there is known to be done.
//
// When the budget or upstream refuses, room is made in stages, the cheapest first: trash, cached
// segments, unused segments of the attached pools, observers, waiting for the streams. Only then is
// OutOfMemory thrown, with the table of the pools.
//
// Invariant: bytes_in_use + bytes_cached (+ what is on its way) == reserved in the budget.
//
// Threads: any. Neither upstream nor pools nor observers are called with the cache's lock held.
class SegmentCache : public SegmentSource {
 public:
  // Frees memory that pools hold, and returns about how many bytes; `needed` would do. It must not
  // allocate from this cache.
  using Observer = std::function<std::size_t(std::size_t needed)>;
  using ObserverId = CallList<Observer>::Id;
  using Source = std::shared_ptr<SegmentSource>;

  // Upstream, budget and events must outlive the cache. Without a budget there is no limit; without
  // events a segment never changes streams.
  SegmentCache(SegmentSource& upstream, Budget* budget, StreamEvents* events = nullptr);
  // With a budget of its own.
  explicit SegmentCache(SegmentSource& upstream, std::size_t max_bytes = SIZE_MAX);
  // Gives the cached segments back. Those still in use are logged as an error.
  ~SegmentCache() override;
  SegmentCache(const SegmentCache&) = delete;
  SegmentCache& operator=(const SegmentCache&) = delete;

  // free(), grow() and shrink() abort unless `segment` is in use with `bytes`.
  void* allocate(std::size_t bytes, StreamId stream) override;
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override;
  bool grow(void* segment, std::size_t bytes, std::size_t grown, StreamId stream) override;
  std::size_t shrink(void* segment, std::size_t bytes, std::size_t least,
                     StreamId stream) noexcept override;
  void attach(SegmentUser& user) override;
  void detach(SegmentUser& user) noexcept override;

  const Source& upstream() const noexcept { return upstream_; }
  // The same from another source than upstream, within the same budget and under the same rules.
  // The source lives as long as the cache has a segment of it.
  void* allocate_from(const Source& source, std::size_t bytes, StreamId stream);
  void free_to(const Source& source, void* segment, std::size_t bytes, StreamId stream) noexcept;

  // Waits for a call that a capture forbids and is on its way.
  DeferredFrees defer_frees() noexcept { return DeferredFrees(*this); }

  ObserverId add_observer(Observer observer) { return observers_.add(std::move(observer)); }
  void remove_observer(ObserverId id) noexcept { observers_.remove(id); }

  // Gives all cached segments back (those of `source`); returns the bytes that were given back now.
  // While frees are held they are trash instead.
  std::size_t trim() noexcept;
  std::size_t trim(const Source& source) noexcept;

  SegmentCacheStatistics statistics() const;
  bool is_capture_open() const noexcept { return gate_.is_held(); }
  StreamProgress& progress() noexcept { return progress_; }

  // Walks the invariants and aborts at the first that does not hold. Not while another thread is
  // asking for segments.
  void validate() const;

 private:
  friend class DeferredFrees;
  struct Key {
    SegmentSource* source;
    std::size_t bytes;
    std::uintptr_t address;
    auto operator<=>(const Key&) const = default;
  };
  struct Held {
    Source source;
    StreamId stream;    // where it is used, or was last
    StreamPoint point;  // of a cached one: after its last use
    bool is_trash = false;
  };
  using Segments = std::map<Key, Held>;
  struct Refusal {
    const Budget* level = nullptr;  // null: upstream refused
    std::string reason;
  };
  struct Recovered;  // bytes by stage
  enum class Which { kTrash, kAll };

  void begin_hold() noexcept { gate_.hold(); }
  void end_hold() noexcept;

  void* reuse(const Source& source, std::size_t bytes, StreamId stream);
  void* try_reuse(const Source& source, std::size_t bytes, StreamId stream, bool& is_waiting);
  void* take_cached(Segments::iterator segment, StreamId stream) noexcept;
  void resize(const Key& from, std::size_t bytes) noexcept;

  // Reserves `bytes` and calls; releases them when that throws. False, with the refusal, when the
  // budget or the source has no room.
  bool take(std::size_t bytes, Refusal& refusal, const std::function<void()>& call);
  // Makes room stage by stage until `attempt` succeeds, or throws OutOfMemory.
  using Attempt = std::function<bool()>;
  void recover(std::size_t bytes, Refusal& refusal, const Attempt& attempt);
  bool ask_users(std::size_t bytes, const Refusal& refusal, const Attempt& attempt,
                 std::size_t& given);
  bool ask_observers(std::size_t bytes, const Refusal& refusal, const Attempt& attempt,
                     Recovered& recovered);
  [[noreturn]] void refuse(std::size_t bytes, const Refusal& refusal, const Recovered& recovered);

  std::size_t give_back(std::size_t enough, Which which, const SegmentSource* source) noexcept;
  Segments extract_cached(std::size_t enough, Which which, const SegmentSource* source,
                          bool only_mark) noexcept;

  std::optional<Budget> own_budget_;
  Budget* const budget_;  // may be null
  const Source upstream_;
  DriverGate gate_;
  StreamProgress progress_;
  SegmentUsers users_;
  CallList<Observer> observers_;
  mutable std::mutex mutex_;  // guards all below
  Segments in_use_;
  Segments cached_;
  SegmentCacheStatistics totals_;  // of both
};

}  // namespace cgtree
