// Finds the pools of requests and of addresses.
#include "caching/caching_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace cgtree {
CachingAllocator::CachingAllocator(SegmentCache& cache, PoolOptions eager)
    : cache_(cache), eager_options_(std::move(eager)) {
}

CachingAllocator::~CachingAllocator() {
  (void)cache_.progress().wait_all();  // for what is freed, and in use
  for (MappedPool& pool : eager_pools_)
    pool.drain();
  sweep();
}

void* CachingAllocator::allocate(std::size_t bytes, StreamId stream) {
  MappedPool* pool = find_eager(stream);
  if (pool == nullptr) [[unlikely]] {
    pool = &make_eager(stream);
  }
  return pool->allocate(bytes);
}

// Makes the pool of a stream, from that of a stream whose work has all ended if there is one.
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
  PoolOptions options = eager_options_;
  options.stream = stream;
  MappedPool& pool =
      eager_pools_.emplace_back(cache_, cache_.own_account(), map_, options, /*is_private=*/false);
  list_eager(pool);
  return pool;
}

// Requires: the lock is held.
void CachingAllocator::list_eager(MappedPool& pool) noexcept {
  std::atomic<MappedPool*>& bucket = eager_[bucket_of(pool.stream())];
  pool.next.store(bucket.load(std::memory_order_relaxed), std::memory_order_release);
  bucket.store(&pool, std::memory_order_release);
}

// A thread that walks the list goes on in the list where the pool is next, whose end it finds. What
// it misses by that it looks for again under the lock. Requires: the lock is held.
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
        fmt::format("{} is in no segment of this allocator: it is foreign, or its pool has ended",
                    fmt::ptr(address)));
  }
  return *pool;
}

void CachingAllocator::free(void* address) {
  MappedPool& pool = owner_of(address);
  const bool is_private = pool.is_private();
  pool.free(address);
  // A private pool may not exist any more from here on.
  if (is_private && unused_pools_ > 0) sweep();
}

void CachingAllocator::free(void* address, StreamId stream) {
  use(address, stream);
  free(address);
}

void CachingAllocator::use(void* address, StreamId stream) {
  owner_of(address).use(address, stream);
}

PoolHandle CachingAllocator::make_pool(PrivatePoolOptions options) {
  PrivatePool* pool = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const PoolId id = ++last_id_;
    auto made = std::make_unique<PrivatePool>(cache_, map_, id, std::move(options));
    pool = made.get();
    private_pools_.emplace(id, OwnedPool{std::move(made), {}});
  }
  // If this throws, it has called the deleter.
  std::shared_ptr<PrivatePool> handle(pool, [this](PrivatePool* last) { release(last->id()); });
  const std::lock_guard lock(mutex_);
  private_pools_.at(pool->id()).handle = handle;
  return PoolHandle(std::move(handle));
}

void CachingAllocator::release(PoolId id) noexcept {
  {
    const std::lock_guard lock(mutex_);
    private_pools_.at(id).pool->set_in_use(false);
    ++unused_pools_;
  }
  sweep();
}

// Ends the pools without a handle, and gives back what is free in those that have live blocks.
void CachingAllocator::sweep() noexcept {
  trim_private(/*only_unused=*/true);
}

// Gives back what is free in private pools, and ends those without a handle or a live block. No
// pool is trimmed with the lock held, because a pool that grows in place waits for the device
// meanwhile. A pool that another thread trims is left to that one.
void CachingAllocator::trim_private(bool only_unused) noexcept {
  std::unique_lock lock(mutex_);
  PoolId last = 0;
  for (auto next = private_pools_.begin(); next != private_pools_.end();
       next = private_pools_.upper_bound(last)) {
    last = next->first;
    OwnedPool& owned = next->second;
    if (owned.is_trimmed || (only_unused && owned.pool->is_in_use())) continue;
    owned.is_trimmed = true;  // so that it stays
    lock.unlock();
    owned.pool->trim();
    lock.lock();
    owned.is_trimmed = false;
    if (owned.pool->is_in_use() || !owned.pool->is_empty()) continue;
    const auto ended = private_pools_.extract(last);
    --unused_pools_;
    lock.unlock();
    const std::shared_ptr<SegmentAccount> account = owned.pool->options().account;
    owned.pool.reset();
    if (account != nullptr && account->source() != nullptr) cache_.trim(account->source());
    lock.lock();
  }
}

std::size_t CachingAllocator::trim() noexcept {
  cache_.progress().poll();
  for (std::size_t i = 0;; ++i) {
    MappedPool* pool = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (i == eager_pools_.size()) break;
      pool = &eager_pools_[i];  // none is removed
    }
    pool->drain();
    pool->pool().trim();
  }
  trim_private(/*only_unused=*/false);
  return cache_.trim();
}

std::size_t CachingAllocator::trim(const PoolHandle& pool) noexcept {
  cache_.progress().poll();
  pool.pool_->trim();
  return cache_.trim(pool.pool_->options().account->source());
}

void CachingAllocator::retire(StreamId stream) noexcept {
  const std::lock_guard lock(mutex_);
  has_retired_ = true;
  for (MappedPool& pool : eager_pools_)
    pool.retire(stream);
  for (auto& [id, owned] : private_pools_)
    owned.pool->retire(stream);
}

AllocatorStatistics CachingAllocator::statistics(const PoolHandle& pool) const {
  AllocatorStatistics one;
  one.total = pool.statistics();
  one.pools.push_back({pool.id(), 0, pool.pool_->options().pool.name, one.total});
  one.pending_blocks = pool.pool_->pending_blocks();
  one.cache = cache_.statistics();
  return one;
}

AllocatorStatistics CachingAllocator::statistics() const {
  AllocatorStatistics all;
  const std::lock_guard lock(mutex_);
  for (const MappedPool& pool : eager_pools_) {
    all.pools.push_back({0, pool.stream(), pool.pool().options().name, pool.pool().statistics()});
    all.pending_blocks += pool.pending_blocks();
  }
  for (const auto& [id, owned] : private_pools_) {
    all.pools.push_back({id, 0, owned.pool->options().pool.name, owned.pool->statistics()});
    all.pending_blocks += owned.pool->pending_blocks();
  }
  for (const AllocatorStatistics::OfPool& pool : all.pools)
    add_to(all.total, pool.statistics);
  all.cache = cache_.statistics();
  return all;
}

}  // namespace cgtree
