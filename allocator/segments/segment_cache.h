// SegmentCache: the segments of one device, shared by all its pools.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "allocator/pool/segment_source.h"
#include "allocator/segments/budget.h"
#include "allocator/segments/driver_gate.h"
#include "allocator/segments/stream_progress.h"
#include "base/call_list.h"
#include "base/condition.h"
#include "base/mutex.h"

namespace cgtree {

// All members are in bytes.
struct SegmentCacheStatistics {
  std::size_t bytes_in_use = 0;    // held by pools
  std::size_t bytes_cached = 0;    // freed by pools, not yet given back to the source
  std::size_t bytes_deferred = 0;  // the part that is given back as soon as no capture is open

  friend bool operator==(const SegmentCacheStatistics&, const SegmentCacheStatistics&) = default;
};

// A SegmentCache keeps segments that pools have freed. A cached segment serves a request of exactly
// its size and source: at once on its last stream, and on another stream once the work there is
// known to have ended.
//
// When a budget or the source refuses, the cache makes room in stages, the cheapest first:
//
//   1. give deferred frees back, if no capture is open
//   2. give cached segments back
//   3. ask the attached pools for unused segments
//   4. call the reclaim callbacks
//   5. wait for the streams
//
// Before stage 3 and before it refuses, it waits for memory that other threads are just giving
// back, which is neither cached nor free. A request beyond the budget's limit is refused at once.
// Each stage ends with another attempt; if none succeeds, OutOfMemory is thrown with a table of the
// pools. Only bytes that are charged to the budget that refused can help. If an account's own
// budget refuses, stages 3 and 4 therefore use only the pools and the callback of that account; if
// a reserve refuses, all stages use everything charged to that reserve.
//
// Invariant: bytes_in_use + bytes_cached (+ bytes in transit) == reserved in the reserves.
//
// Thread safety: all functions may be called from any thread. No source, pool or callback is called
// with the cache's lock held.
class SegmentCache : public SegmentSource {
 public:
  using Source = SegmentAccount::Source;
  // A reclaim callback frees memory that pools hold, and returns about how many bytes; `needed`
  // would be enough. It must not allocate from this cache.
  using Reclaim = std::function<std::size_t(std::size_t needed)>;

  // Upstream, budget and events must outlive the cache. A null budget means no limit; without
  // events a segment never changes streams.
  explicit SegmentCache(SegmentSource& upstream, Budget* budget = nullptr,
                        StreamEvents* events = nullptr);
  // Gives the cached segments back. Segments that are still in use are logged as an error.
  ~SegmentCache() override;
  SegmentCache(const SegmentCache&) = delete;
  SegmentCache& operator=(const SegmentCache&) = delete;

  // The functions of SegmentSource for the pools of an account. The account must outlive its
  // segments and its users. free_for(), grow_for() and shrink_for() abort unless `segment` is in
  // use with `bytes`.
  enum class Room { kFree, kMade };  // kMade: makes room if there is none
  void* allocate_for(SegmentAccount& account, std::size_t bytes, StreamId stream,
                     Room room = Room::kMade);
  void free_for(SegmentAccount& account, void* segment, std::size_t bytes,
                StreamId stream) noexcept;
  bool grow_for(SegmentAccount& account, void* segment, std::size_t bytes, std::size_t grown,
                StreamId stream);
  std::size_t shrink_for(SegmentAccount& account, void* segment, std::size_t bytes,
                         std::size_t least, StreamId stream) noexcept;
  void map_for(SegmentAccount& account, void* segment, std::size_t bytes, std::size_t offset,
               std::size_t count, StreamId stream);
  bool unmap_for(SegmentAccount& account, void* segment, std::size_t bytes, std::size_t offset,
                 std::size_t count, StreamId stream) noexcept;
  void attach_for(SegmentAccount& account, SegmentUser& user);

  // The same for the cache's own account, which has no limit below the reserve.
  void* allocate(std::size_t bytes, StreamId stream) override {
    return allocate_for(own_account_, bytes, stream);
  }
  void* allocate_from_free(std::size_t bytes, StreamId stream) override {
    return allocate_for(own_account_, bytes, stream, Room::kFree);
  }
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override {
    free_for(own_account_, segment, bytes, stream);
  }
  bool grow(void* segment, std::size_t bytes, std::size_t grown, StreamId stream) override {
    return grow_for(own_account_, segment, bytes, grown, stream);
  }
  std::size_t shrink(void* segment, std::size_t bytes, std::size_t least,
                     StreamId stream) noexcept override {
    return shrink_for(own_account_, segment, bytes, least, stream);
  }
  void map(void* segment, std::size_t bytes, std::size_t offset, std::size_t count,
           StreamId stream) override {
    map_for(own_account_, segment, bytes, offset, count, stream);
  }
  bool unmap(void* segment, std::size_t bytes, std::size_t offset, std::size_t count,
             StreamId stream) noexcept override {
    return unmap_for(own_account_, segment, bytes, offset, count, stream);
  }
  void attach(SegmentUser& user) override { attach_for(own_account_, user); }
  // Waits for a call of the user in progress.
  void detach(SegmentUser& user) noexcept override;

  SegmentAccount& own_account() noexcept { return own_account_; }

  // Holds the gate of the device for a capture, after waiting for calls inside.
  DeferredFrees defer_frees();

  // Adds a callback for lack of memory: of the account, or, if it is null, of everything charged to
  // the cache's budget. remove_reclaim() waits for a call in progress.
  using ReclaimId = std::size_t;
  ReclaimId add_reclaim(Reclaim reclaim, const SegmentAccount* account = nullptr);
  void remove_reclaim(ReclaimId id) noexcept { reclaims_.remove(id); }

  // Gives all cached segments back, or those of `source`; returns the bytes that were given back
  // now. While a capture is open the frees are deferred instead.
  std::size_t trim(const Source& source = nullptr) noexcept;

  SegmentCacheStatistics statistics() const;
  StreamProgress& progress() noexcept { return progress_; }

  // Checks the invariants, and aborts at the first that is broken. Requires: no other thread is
  // asking for segments.
  void validate() const;

 private:
  struct Key {
    SegmentSource* source;
    std::size_t bytes;
    std::uintptr_t address;
    auto operator<=>(const Key&) const = default;
  };
  struct Held {
    Source source;
    std::shared_ptr<Budget> reserve;
    StreamId stream;    // its present or last stream
    StreamPoint point;  // of a cached segment: after its last use
    bool is_deferred = false;
    std::size_t unmapped = 0;  // bytes without memory; if not 0, the segment serves no other pool
  };
  using Segments = std::map<Key, Held>;
  static std::size_t bytes_of(const Segments::value_type& entry) noexcept {
    return entry.first.bytes - entry.second.unmapped;
  }
  struct User {
    SegmentUser* user;
    const SegmentAccount* account;
  };
  struct Callback {
    Reclaim reclaim;
    const SegmentAccount* account;
  };
  struct Request;  // defined in the .cc
  enum class Which { kDeferred, kAll };
  // A Filter selects cached segments; null members select all.
  struct Filter {
    const SegmentSource* source = nullptr;
    const Budget* reserve = nullptr;
  };

  const Source& source_of(const SegmentAccount& account) const noexcept {
    return account.source() != nullptr ? account.source() : upstream_;
  }
  const std::shared_ptr<Budget>& reserve_of(const SegmentAccount& account) const noexcept {
    return account.reserve() != nullptr ? account.reserve() : reserve_;
  }

  void charge(SegmentAccount& account, std::size_t bytes, Room room);
  void* allocate_charged(SegmentAccount& account, std::size_t bytes, StreamId stream, Room room);
  bool grow_charged(SegmentAccount& account, void* segment, std::size_t bytes, std::size_t grown,
                    StreamId stream);

  void* reuse(const Source& source, std::size_t bytes, StreamId stream);
  void* try_reuse(const Source& source, std::size_t bytes, StreamId stream, bool& is_waiting);
  void* take_cached(Segments::iterator segment, StreamId stream) noexcept;
  void resize(const Key& from, std::size_t bytes) noexcept;
  void note_mapped(const Key& key, std::size_t bytes, bool is_mapped) noexcept;

  bool take(Request& request, const std::function<void()>& call);
  void recover(Request& request);
  bool can_help(const Request& request, const SegmentAccount& account) const noexcept;
  bool ask_users(Request& request);
  bool ask_reclaims(Request& request);
  void report_users(const Request& request, MemoryReport& report);
  [[noreturn]] void refuse(const Request& request);

  // A Return is memory that a thread is giving back; other threads may wait for its end.
  class Return;
  bool wait_for_returns() noexcept;

  std::size_t give_back(std::size_t enough, Which which, const Filter& filter) noexcept;
  Segments extract_cached(std::size_t enough, Which which, const Filter& filter,
                          bool only_mark) noexcept;

  std::optional<Budget> own_budget_;
  const std::shared_ptr<Budget> reserve_;  // the budget of the device; not owned
  const Source upstream_;                  // not owned
  SegmentAccount own_account_{{}};
  DriverGate gate_;
  StreamProgress progress_;
  CallList<User> users_;
  CallList<Callback> reclaims_;
  mutable Mutex<LockRank::kSegmentCache> mutex_;  // guards all below
  Condition return_ended_;
  std::uint64_t returns_begun_ = 0;
  std::uint64_t returns_ended_ = 0;
  Segments in_use_;
  Segments cached_;
  SegmentCacheStatistics totals_;  // of both
};

}  // namespace cgtree
