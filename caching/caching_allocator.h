// CachingAllocator: the memory of one device, safe across streams and captures.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "allocator/segments/segment_cache.h"
#include "base/mutex.h"
#include "caching/private_pool.h"
#include "caching/segment_map.h"
#include "caching/stream_pool.h"

namespace cgtree {

class CachingAllocator;

// A Route says where the requests of a thread or of a stream go.
struct Route {
  std::uint64_t number = 0;  // later routes have larger numbers; 0 is no route
  StreamId stream = 0;       // of a stream's route
  PoolHandle pool;
  bool is_capture = false;
};

// A ThreadRoute sends the allocations of its thread to a pool while it lives. It must end on the
// thread where it began, in reverse order of construction.
class ThreadRoute {
 public:
  ThreadRoute(CachingAllocator& allocator, PoolHandle pool);
  ~ThreadRoute();
  ThreadRoute(const ThreadRoute&) = delete;
  ThreadRoute& operator=(const ThreadRoute&) = delete;

 private:
  friend class CachingAllocator;
  CachingAllocator& allocator_;
  const Route route_;
  ThreadRoute* const outer_;
};

// A StreamRoute sends the allocations of a stream, on any thread, to a pool while it lives.
class StreamRoute {
 public:
  StreamRoute(CachingAllocator& allocator, StreamId stream, PoolHandle pool);
  ~StreamRoute();
  StreamRoute(const StreamRoute&) = delete;
  StreamRoute& operator=(const StreamRoute&) = delete;

 private:
  CachingAllocator& allocator_;
  std::uint64_t number_;
};

// A CaptureScope is an open capture: allocations on its streams go to its pool, and are ordered by
// its graph. Move-only; its end undoes what its beginning did.
class CaptureScope {
 public:
  CaptureScope(CaptureScope&& other) noexcept;
  CaptureScope& operator=(CaptureScope&&) = delete;
  ~CaptureScope() { end(); }

  // Must be called when the graph is complete or abandoned. A second call does nothing.
  void end() noexcept;

 private:
  friend class CachingAllocator;
  CaptureScope(CachingAllocator& allocator, PoolHandle pool, std::span<const StreamId> streams,
               const MakeCapture& make);

  CachingAllocator* allocator_;
  PoolHandle pool_;
  std::vector<std::uint64_t> routes_;
};

struct AllocatorStatistics {
  struct OfPool {
    PoolId id = 0;  // 0 for the eager pool of `stream`
    StreamId stream = 0;
    std::string name;
    PoolStatistics statistics;
  };
  PoolStatistics total;  // peaks are sums of peaks
  std::vector<OfPool> pools;
  SegmentCacheStatistics cache;
  std::size_t pending_blocks = 0;  // blocks that are freed, but that other streams may still use
};

// A CachingAllocator has an eager pool per stream, and private pools for callers that ask for one.
// A request goes to the pool of the innermost route of its thread or its stream, else to the eager
// pool of its stream; no state of the device decides.
//
// A context has three private pools: for outputs, for scratch memory, and for eager calls. Streams,
// captures, budgets and recovery are the same for these pools and for all others.
//
// Thread safety: all functions may be called from any thread, and blocks may be freed on any
// thread. The allocator must outlive all routes, captures and handles.
class CachingAllocator {
 public:
  // `cache` must outlive the allocator, and may have other users. `eager` are the options of the
  // eager pools.
  explicit CachingAllocator(SegmentCache& cache,
                            PoolOptions eager = {.name = "eager",
                                                 .thread_caching = ThreadCaching::kWhenContended});
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Returns memory for work on `stream`. Throws as Pool::allocate() does.
  void* allocate(std::size_t bytes, StreamId stream);
  // The same from a private pool, whatever the routes say.
  void* allocate_in(const PoolHandle& pool, std::size_t bytes, StreamId stream) {
    return pool.pool_->allocate(bytes, stream);
  }

  // Throws InvalidArgument, and changes nothing, unless `address` is the start of a live block.
  void free(void* address);
  // The same after a use on `stream`.
  void free(void* address, StreamId stream);

  // Notes that work on `stream` uses the block: once freed, it waits for what is submitted to the
  // stream by then. Throws InvalidArgument, and changes nothing, unless `address` is the start of a
  // live block.
  void use(void* address, StreamId stream);

  PoolHandle make_pool(PrivatePoolOptions options = {});

  // Begins a capture on these streams, whose allocations go to the pool; so do those of streams
  // that join the capture later. Throws InvalidArgument if the pool has a capture open. See
  // cgtree::begin_capture() (caching/captures/capture_session.h).
  [[nodiscard]] CaptureScope begin_capture(const PoolHandle& pool,
                                           std::span<const StreamId> streams,
                                           const MakeCapture& make);

  // Gives back what is unused, except segments that private pools keep; returns the bytes that went
  // back to the device now.
  std::size_t trim() noexcept;
  // The same for one pool and the cached segments of its source. Requires: the pool has a source of
  // its own.
  std::size_t trim(const PoolHandle& pool) noexcept;

  // Must be called before a stream is destroyed, so that no event is recorded on it any more.
  // Blocks that it uses wait for what is submitted to it by now, whenever they are freed. Its pools
  // serve later streams once that has ended.
  void retire(StreamId stream, StreamProgress::Work work) noexcept;

  AllocatorStatistics statistics() const;
  // The same for one pool; the statistics of the cache are those of all pools.
  AllocatorStatistics statistics(const PoolHandle& pool) const;

  // Observes all pools, present and future; null removes the observer. See Pool::set_observer().
  void set_observer(PoolObserver* observer);

 private:
  friend class ThreadRoute;
  friend class StreamRoute;
  friend class CaptureScope;
  static constexpr std::size_t kBuckets = 64;

  StreamPool* find_eager(StreamId stream) const noexcept {
    StreamPool* pool = eager_[bucket_of(stream)].load(std::memory_order_acquire);
    while (pool != nullptr && pool->stream() != stream)
      pool = pool->next.load(std::memory_order_acquire);
    return pool;
  }
  static std::size_t bucket_of(StreamId stream) noexcept {
    return (stream * 0x9e3779b97f4a7c15) >> 58;
  }
  StreamPool& make_eager(StreamId stream);
  void list_eager(StreamPool& pool) noexcept;
  void unlist_eager(StreamPool& pool, StreamId former) noexcept;
  StreamPool& owner_of(void* address) const;
  void* allocate_eager(std::size_t bytes, StreamId stream);
  void* allocate_routed(const Route& route, std::size_t bytes, StreamId stream);
  void* allocate_elsewhere(std::size_t bytes, StreamId stream);
  Route find_route(StreamId stream) const;
  Route find_capture(StreamId stream) const;
  void add_route(Route route);
  void remove_route(std::uint64_t number) noexcept;
  std::uint64_t next_route() noexcept { return ++last_route_; }
  void release(PoolId id) noexcept;
  void sweep() noexcept;
  void trim_private(bool only_unused) noexcept;

  SegmentCache& cache_;
  const PoolOptions eager_options_;
  SegmentMap map_;
  std::array<std::atomic<StreamPool*>, kBuckets> eager_{};
  std::atomic<std::uint64_t> last_route_{0};
  std::atomic<std::size_t> stream_routes_{0};
  std::atomic<std::size_t> capture_routes_{0};  // of these, those of captures
  std::atomic<std::size_t> unused_pools_{0};    // without a handle, with live blocks

  mutable SharedMutex<LockRank::kRoutes> routes_mutex_;  // guards routes_
  std::vector<Route> routes_;                            // of streams, the innermost last

  mutable Mutex<LockRank::kAllocator> mutex_;  // guards all below
  std::deque<StreamPool> eager_pools_;
  bool has_retired_ = false;  // a stream may have left an eager pool
  struct OwnedPool {
    std::unique_ptr<PrivatePool> pool;
    std::weak_ptr<PrivatePool> handle;
    bool is_trimmed = false;  // by a thread that will look whether it can end
  };
  std::map<PoolId, OwnedPool> private_pools_;
  PoolId last_id_ = 0;
  PoolObserver* observer_ = nullptr;
};

}  // namespace cgtree
