// CachingAllocator: the memory of one device, safe across streams.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "allocator/segments/segment_cache.h"
#include "base/mutex.h"
#include "caching/mapped_pool.h"
#include "caching/private_pool.h"
#include "caching/segment_map.h"
#include "caching/threads/thread_caches.h"

namespace cgtree {

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
// The caller names the pool or the stream; no state of the device decides.
//
// Pools of contexts are no part of it, and have their segments from the same cache.
//
// Thread safety: all functions may be called from any thread, and blocks may be freed on any
// thread. The allocator must outlive all handles.
class CachingAllocator {
 public:
  // `cache` must outlive the allocator, and may have other users. `eager` are the options of the
  // eager pools.
  explicit CachingAllocator(SegmentCache& cache,
                            PoolOptions eager = {.name = "eager",
                                                 .thread_caching = ThreadCaching::kWhenContended,
                                                 .make_caches = make_thread_caches});
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Returns memory for work on `stream`. Throws as Pool::allocate() does.
  void* allocate(std::size_t bytes, StreamId stream);
  // The same from a private pool.
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

  // Gives back what is unused, except segments that private pools keep; returns the bytes that went
  // back to the device now.
  std::size_t trim() noexcept;
  // The same for one pool and the cached segments of its source. Requires: the pool has a source of
  // its own.
  std::size_t trim(const PoolHandle& pool) noexcept;

  // Must be called before a stream is destroyed, and retired from the progress of the cache. Blocks
  // that it uses wait for what is submitted to it by now, whenever they are freed. Its pools serve
  // later streams once that has ended.
  void retire(StreamId stream) noexcept;

  AllocatorStatistics statistics() const;
  // The same for one pool; the statistics of the cache are those of all pools.
  AllocatorStatistics statistics(const PoolHandle& pool) const;

 private:
  static constexpr std::size_t kBuckets = 64;

  MappedPool* find_eager(StreamId stream) const noexcept {
    MappedPool* pool = eager_[bucket_of(stream)].load(std::memory_order_acquire);
    while (pool != nullptr && pool->stream() != stream)
      pool = pool->next.load(std::memory_order_acquire);
    return pool;
  }
  static std::size_t bucket_of(StreamId stream) noexcept {
    return (stream * 0x9e3779b97f4a7c15) >> 58;
  }
  MappedPool& make_eager(StreamId stream);
  void list_eager(MappedPool& pool) noexcept;
  void unlist_eager(MappedPool& pool, StreamId former) noexcept;
  MappedPool& owner_of(void* address) const;
  void release(PoolId id) noexcept;
  void sweep() noexcept;
  void trim_private(bool only_unused) noexcept;

  SegmentCache& cache_;
  const PoolOptions eager_options_;
  SegmentMap map_;
  std::array<std::atomic<MappedPool*>, kBuckets> eager_{};
  std::atomic<std::size_t> unused_pools_{0};  // without a handle, with live blocks

  mutable Mutex<LockRank::kAllocator> mutex_;  // guards all below
  std::deque<MappedPool> eager_pools_;
  bool has_retired_ = false;  // a stream may have left an eager pool
  struct OwnedPool {
    std::unique_ptr<PrivatePool> pool;
    std::weak_ptr<PrivatePool> handle;
    bool is_trimmed = false;  // by a thread that will look whether it can end
  };
  std::map<PoolId, OwnedPool> private_pools_;
  PoolId last_id_ = 0;
};

}  // namespace cgtree
