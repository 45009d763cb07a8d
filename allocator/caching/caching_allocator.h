// The memory of one device for everybody: fast on one stream, safe across streams and captures.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "allocator/caching/pool_handle.h"
#include "allocator/caching/private_pool.h"
#include "allocator/caching/routes.h"
#include "allocator/segments/segment_cache.h"
#include "allocator/caching/segment_map.h"
#include "allocator/caching/stream_pool.h"

namespace cgtree {

struct AllocatorStatistics {
  struct OfPool {
    PoolId id = 0;  // 0: the eager pool of `stream`
    StreamId stream = 0;
    std::string name;
    PoolStatistics statistics;
  };
  PoolStatistics total;  // peaks are sums of peaks
  std::vector<OfPool> pools;
  SegmentCacheStatistics cache;
  std::size_t pending_blocks = 0;  // of eager pools: freed, but other streams may use them yet
};

// An eager pool per stream, and private pools for those who ask. Where a request goes is said by
// routes, never by a state of the device: the innermost route of this thread or this stream, else
// the stream's eager pool.
//
// Blocks may be freed on any thread. Threads: any. It must outlive all routes, captures and
// handles.
class CachingAllocator {
 public:
  // `cache` must outlive it, and may have other users. `eager` is for the eager pools.
  explicit CachingAllocator(SegmentCache& cache, PoolOptions eager = {.name = "eager"});
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // For work on `stream`. Throws as Pool::allocate() does.
  void* allocate(std::size_t bytes, StreamId stream);

  // Throws InvalidArgument, and changes nothing, unless `address` is of a live block.
  void free(void* address);
  // On another stream than it was allocated on, too.
  void free(void* address, StreamId stream);

  // Work on `stream` uses the block: once freed it waits for what is submitted there by then.
  void use(void* address, StreamId stream);

  PoolHandle make_pool(PrivatePoolOptions options = {});

  // A capture on these streams; its allocations go to the pool. Throws InvalidArgument when the
  // pool has a capture open.
  [[nodiscard]] CaptureScope begin_capture(const PoolHandle& pool,
                                           std::span<const StreamId> streams, CaptureOrder& order);

  // Gives back what is unused, but for segments of private pools in use; returns the bytes that
  // went back to the device now.
  std::size_t trim() noexcept;

  AllocatorStatistics statistics() const;

  // Of all pools, present and future; null: nobody. See Pool::set_observer().
  void set_observer(PoolObserver* observer);

 private:
  friend class ThreadRoute;
  friend class StreamRoute;
  friend class CaptureScope;
  static constexpr std::size_t kBuckets = 64;

  StreamPool* find_eager(StreamId stream) const noexcept {
    const std::size_t bucket = (stream * 0x9e3779b97f4a7c15) >> 58;
    StreamPool* pool = eager_[bucket].load(std::memory_order_acquire);
    while (pool != nullptr && pool->stream() != stream)
      pool = pool->next;
    return pool;
  }
  StreamPool& make_eager(StreamId stream);
  StreamPool& owner_of(void* address) const;
  void* allocate_eager(std::size_t bytes, StreamId stream);
  void* allocate_routed(const Route& route, std::size_t bytes, StreamId stream);
  void* allocate_elsewhere(std::size_t bytes, StreamId stream);
  Route find_route(StreamId stream) const;
  void add_route(Route route);
  void remove_route(std::uint64_t number) noexcept;
  std::uint64_t next_route() noexcept { return ++last_route_; }
  void release(PoolId id) noexcept;
  void sweep() noexcept;

  SegmentCache& cache_;
  const PoolOptions eager_options_;
  SegmentMap map_;
  std::array<std::atomic<StreamPool*>, kBuckets> eager_{};
  std::atomic<std::uint64_t> last_route_{0};
  std::atomic<std::size_t> stream_routes_{0};
  std::atomic<std::size_t> unused_pools_{0};  // without a handle, with live blocks

  mutable std::shared_mutex routes_mutex_;  // guards routes_
  std::vector<Route> routes_;               // of streams, the innermost last

  mutable std::mutex mutex_;  // guards all below
  std::deque<StreamPool> eager_pools_;
  struct OwnedPool {
    std::unique_ptr<PrivatePool> pool;
    std::weak_ptr<PrivatePool> handle;
  };
  std::map<PoolId, OwnedPool> private_pools_;
  PoolId last_id_ = 0;
  PoolObserver* observer_ = nullptr;
};

}  // namespace cgtree
