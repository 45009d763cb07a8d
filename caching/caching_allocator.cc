// Finds the pools of requests and of addresses.
#include "caching/caching_allocator.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/format.h"
#include "caching/threads/thread_caches.h"

namespace cgtree {
namespace {

// Adds the statistics of one pool to a sum. The peak of a sum is unknown: the sum of the peaks is
// an upper bound.
void add_to(PoolStatistics& sum, const PoolStatistics& statistics) {
#define CGTREE_ADD(name)                           \
  sum.name.current += statistics.name.current;     \
  sum.name.peak += statistics.name.peak;           \
  sum.name.allocated += statistics.name.allocated; \
  sum.name.freed += statistics.name.freed;
  CGTREE_POOL_COUNTERS(CGTREE_ADD)
#undef CGTREE_ADD
#define CGTREE_ADD(name) sum.name += statistics.name;
  CGTREE_POOL_EVENTS(CGTREE_ADD)
#undef CGTREE_ADD
  sum.largest_free_block = std::max(sum.largest_free_block, statistics.largest_free_block);
}

// Enters the segments of a pool into the map of addresses.
class MappedSegments final : public PoolSegments {
 public:
  MappedSegments(MappedPool& owner, SegmentCache& cache, SegmentMap& map)
      : PoolSegments(cache, cache.own_account()), owner_(owner), map_(map) {}

  // SegmentSource.
  void* allocate(std::size_t bytes, StreamId stream) override {
    return enter(PoolSegments::allocate(bytes, stream), bytes);
  }
  void* allocate_from_free(std::size_t bytes, StreamId stream) override {
    return enter(PoolSegments::allocate_from_free(bytes, stream), bytes);
  }
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override {
    map_.erase({reinterpret_cast<std::uintptr_t>(segment), bytes});
    PoolSegments::free(segment, bytes, stream);
  }

 private:
  // Enters a segment, or gives it back and throws.
  void* enter(void* segment, std::size_t bytes) {
    try {
      map_.insert({reinterpret_cast<std::uintptr_t>(segment), bytes}, owner_);
    } catch (...) {
      PoolSegments::free(segment, bytes, stream());
      throw;
    }
    return segment;
  }

  MappedPool& owner_;
  SegmentMap& map_;
};

}  // namespace

MappedPool::MappedPool(SegmentCache& cache, SegmentMap& map, const PoolOptions& options)
    : StreamPool(cache, std::make_unique<MappedSegments>(*this, cache, map), options) {
}

CachingAllocator::CachingAllocator(SegmentCache& cache, ThreadCaching caching)
    : cache_(cache), caching_(caching) {
}

CachingAllocator::~CachingAllocator() {
  (void)cache_.progress().wait_all();  // for freed blocks in use
  for (MappedPool& pool : eager_pools_)
    pool.drain();
}

void* CachingAllocator::allocate(std::size_t bytes, StreamId stream) {
  MappedPool* pool = find_eager(stream);
  if (pool == nullptr) [[unlikely]] {
    pool = &make_eager(stream);
  }
  return pool->allocate(bytes);
}

// Makes the pool of a stream, if possible from the pool of a stream whose work has all ended.
MappedPool& CachingAllocator::make_eager(StreamId stream) {
  std::unique_lock lock(mutex_);
  if (has_retired_) {
    lock.unlock();
    cache_.progress().poll();
    lock.lock();
  }
  if (MappedPool* const other = find_eager(stream)) return *other;
  for (MappedPool& pool : eager_pools_) {
    const StreamId former = pool.stream();
    if (!pool.take_over(stream)) continue;
    unlist_eager(pool, former);
    list_eager(pool);
    return pool;
  }
  MappedPool& pool = eager_pools_.emplace_back(cache_, map_,
                                               PoolOptions{.name = "eager",
                                                           .thread_caching = caching_,
                                                           .make_caches = make_thread_caches,
                                                           .stream = stream});
  list_eager(pool);
  return pool;
}

// Requires: the lock is held.
void CachingAllocator::list_eager(MappedPool& pool) noexcept {
  std::atomic<MappedPool*>& bucket = eager_[bucket_of(pool.stream())];
  pool.next.store(bucket.load(std::memory_order_relaxed), std::memory_order_release);
  bucket.store(&pool, std::memory_order_release);
}

// A thread that walks the list continues in the pool's new list, whose end it finds. Under the lock
// it looks again for pools that it missed. Requires: the lock is held.
void CachingAllocator::unlist_eager(MappedPool& pool, StreamId former) noexcept {
  std::atomic<MappedPool*>* link = &eager_[bucket_of(former)];
  while (link->load(std::memory_order_relaxed) != &pool)
    link = &link->load(std::memory_order_relaxed)->next;
  link->store(pool.next.load(std::memory_order_relaxed), std::memory_order_release);
}

MappedPool& CachingAllocator::owner_of(void* address) const {
  if (address == nullptr) throw InvalidArgument("null is no block; an empty tensor has none");
  MappedPool* const pool = map_.find(reinterpret_cast<std::uintptr_t>(address));
  if (pool == nullptr) [[unlikely]] {
    throw InvalidArgument(
        str_format("{} is in no segment of this allocator: it is foreign, or its pool has ended",
                   static_cast<const void*>(address)));
  }
  return *pool;
}

void CachingAllocator::free(void* address) {
  owner_of(address).free(address);
}

void CachingAllocator::free(void* address, StreamId stream) {
  use(address, stream);
  free(address);
}

void CachingAllocator::use(void* address, StreamId stream) {
  owner_of(address).use(address, stream);
}

std::size_t CachingAllocator::trim() noexcept {
  cache_.progress().poll();
  for (std::size_t i = 0;; ++i) {
    MappedPool* pool = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (i == eager_pools_.size()) break;
      pool = &eager_pools_[i];  // pools are never removed
    }
    pool->drain();
    pool->pool().trim();
  }
  return cache_.trim();
}

void CachingAllocator::retire(StreamId stream) noexcept {
  const std::lock_guard lock(mutex_);
  has_retired_ = true;
  for (MappedPool& pool : eager_pools_)
    pool.retire(stream);
}

AllocatorStatistics CachingAllocator::statistics() const {
  AllocatorStatistics all;
  const std::lock_guard lock(mutex_);
  for (const MappedPool& pool : eager_pools_) {
    all.pools.push_back({pool.stream(), pool.pool().statistics()});
    add_to(all.total, all.pools.back().statistics);
    all.pending_blocks += pool.pending_blocks();
  }
  all.cache = cache_.statistics();
  return all;
}

}  // namespace cgtree
