// CachingAllocator: the memory of one device, safe across streams.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "allocator/device/stream_pool.h"
#include "allocator/segments/segment_cache.h"
#include "base/mutex.h"
#include "caching/segment_map.h"

namespace cgtree {

struct AllocatorStatistics {
  struct OfPool {
    StreamId stream = 0;
    PoolStatistics statistics;
  };
  PoolStatistics total;  // peaks are sums of peaks
  std::vector<OfPool> pools;
  SegmentCacheStatistics cache;
  std::size_t pending_blocks = 0;  // freed blocks that other streams may still use
};

// A MappedPool is a StreamPool whose blocks are found by their addresses.
class MappedPool final : public StreamPool {
 public:
  // Both must outlive the pool. Requires: its segments do not grow (Growth::kFast).
  MappedPool(SegmentCache& cache, SegmentMap& map, const PoolOptions& options);

  // The next pool of a list of the eager pools.
  std::atomic<MappedPool*> next{nullptr};
};

// A CachingAllocator has one eager pool per stream. The caller names the stream; no state of the
// device matters.
//
// Pools of contexts do not belong to it, and get their segments from the same cache.
//
// Thread safety: all functions may be called from any thread, and blocks may be freed on any
// thread.
class CachingAllocator {
 public:
  // `cache` must outlive the allocator, and may have other users. `caching`: when threads keep
  // blocks that they have freed.
  explicit CachingAllocator(SegmentCache& cache,
                            ThreadCaching caching = ThreadCaching::kWhenContended);
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Returns memory for work on `stream`. Throws as Pool::allocate() does.
  void* allocate(std::size_t bytes, StreamId stream);

  // Throws InvalidArgument, and changes nothing, unless `address` is the start of a live block.
  void free(void* address);
  // The same after a use on `stream`.
  void free(void* address, StreamId stream);

  // Notes that work on `stream` uses the block: once freed, it waits for the work submitted to the
  // stream by then. Throws InvalidArgument, and changes nothing, unless `address` is the start of a
  // live block.
  void use(void* address, StreamId stream);

  // Gives back unused memory; returns the bytes that went back to the device now.
  std::size_t trim() noexcept;

  // Must be called before a stream is destroyed, and retired from the progress of the cache. Blocks
  // that it uses wait for the work submitted to it by now, whenever they are freed. Its pool serves
  // a later stream once that work has ended.
  void retire(StreamId stream) noexcept;

  AllocatorStatistics statistics() const;

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

  SegmentCache& cache_;
  const ThreadCaching caching_;
  SegmentMap map_;
  std::array<std::atomic<MappedPool*>, kBuckets> eager_{};

  mutable Mutex<LockRank::kAllocator> mutex_;  // guards all below
  std::deque<MappedPool> eager_pools_;
  bool has_retired_ = false;  // a stream may have left an eager pool
};

}  // namespace cgtree
