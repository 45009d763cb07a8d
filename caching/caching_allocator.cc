// Finds the pools of requests and of addresses.
#include "caching/caching_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace cgtree {
namespace {

// The innermost route of this thread, for any allocator.
constinit thread_local ThreadRoute* innermost = nullptr;

}  // namespace

CachingAllocator::CachingAllocator(SegmentCache& cache, PoolOptions eager)
    : cache_(cache), eager_options_(std::move(eager)) {
}

CachingAllocator::~CachingAllocator() {
  (void)cache_.progress().wait_all();  // for what is freed, and in use
  for (StreamPool& pool : eager_pools_)
    pool.drain();
  sweep();
}

void* CachingAllocator::allocate(std::size_t bytes, StreamId stream) {
  if (innermost != nullptr || stream_routes_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
    const Route route = find_route(stream);
    if (route.number != 0) return allocate_routed(route, bytes, stream);
  }
  return allocate_eager(bytes, stream);
}

void* CachingAllocator::allocate_eager(std::size_t bytes, StreamId stream) {
  StreamPool* pool = find_eager(stream);
  if (pool == nullptr) [[unlikely]] {
    pool = &make_eager(stream);
  }
  try {
    return pool->allocate(bytes);
  } catch (const OutOfMemory&) {
    if (void* const address = allocate_elsewhere(bytes, stream)) return address;
    throw;
  }
}

// Allocates from a private pool that serves other requests when there is no room. No pool is called
// with the lock held.
void* CachingAllocator::allocate_elsewhere(std::size_t bytes, StreamId stream) {
  std::vector<PoolHandle> pools;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, owned] : private_pools_) {
      if (!owned.pool->options().serves_on_oom) continue;
      if (auto pool = owned.handle.lock()) pools.emplace_back(std::move(pool));
    }
  }
  for (const PoolHandle& handle : pools) {
    try {
      if (void* const address = handle.pool_->try_allocate_free(bytes, stream)) return address;
    } catch (const OutOfMemory&) {
      // Another thread took the block.
    }
  }
  return nullptr;
}

void* CachingAllocator::allocate_routed(const Route& route, std::size_t bytes, StreamId stream) {
  PrivatePool& pool = *route.pool.pool_;
  return route.is_capture ? pool.allocate_captured(bytes, stream) : pool.allocate(bytes, stream);
}

Route CachingAllocator::find_route(StreamId stream) const {
  Route found;
  for (const ThreadRoute* route = innermost; route != nullptr; route = route->outer_) {
    if (&route->allocator_ != this) continue;
    found = route->route_;
    break;
  }
  if (stream_routes_.load(std::memory_order_relaxed) == 0) return found;
  const auto use_inner = [&](const Route& route) {
    if (route.number > found.number) found = route;
  };
  bool is_told_capture = false;
  {
    const std::shared_lock lock(routes_mutex_);
    const auto last = std::find_if(routes_.rbegin(), routes_.rend(),
                                   [&](const Route& route) { return route.stream == stream; });
    if (last != routes_.rend()) {
      is_told_capture = last->is_capture;
      use_inner(*last);
    }
  }
  if (!is_told_capture) use_inner(find_capture(stream));
  return found;
}

// Returns the route of the capture that the stream has joined without being named at its beginning,
// or no route. The captures are asked without the lock.
Route CachingAllocator::find_capture(StreamId stream) const {
  if (capture_routes_.load(std::memory_order_relaxed) == 0) return {};
  std::vector<Route> captures;  // one of each
  {
    const std::shared_lock lock(routes_mutex_);
    for (const Route& route : routes_) {
      const bool is_known = std::any_of(captures.begin(), captures.end(), [&](const Route& known) {
        return known.pool == route.pool;
      });
      if (route.is_capture && !is_known) captures.push_back(route);
    }
  }
  for (const Route& route : captures) {
    if (route.pool.pool_->is_capturing(stream)) return route;
  }
  return {};
}

void CachingAllocator::add_route(Route route) {
  const std::lock_guard lock(routes_mutex_);
  const bool is_capture = route.is_capture;
  routes_.push_back(std::move(route));
  stream_routes_ = routes_.size();
  if (is_capture) ++capture_routes_;
}

void CachingAllocator::remove_route(std::uint64_t number) noexcept {
  Route removed;  // its handle ends without the lock
  const std::lock_guard lock(routes_mutex_);
  const auto found = std::find_if(routes_.begin(), routes_.end(),
                                  [&](const Route& route) { return route.number == number; });
  CGTREE_CHECK(found != routes_.end());
  removed = std::move(*found);
  routes_.erase(found);
  stream_routes_ = routes_.size();
  if (removed.is_capture) --capture_routes_;
}

// Makes the pool of a stream, from that of a stream whose work has all ended if there is one.
StreamPool& CachingAllocator::make_eager(StreamId stream) {
  std::unique_lock lock(mutex_);
  if (has_retired_) {
    lock.unlock();
    cache_.progress().poll();
    lock.lock();
  }
  if (StreamPool* const other = find_eager(stream)) return *other;
  for (StreamPool& pool : eager_pools_) {
    const StreamId former = pool.stream();
    if (!pool.take_over(stream)) continue;
    unlist_eager(pool, former);
    list_eager(pool);
    return pool;
  }
  PoolOptions options = eager_options_;
  options.stream = stream;
  StreamPool& pool =
      eager_pools_.emplace_back(cache_, cache_.own_account(), map_, options, nullptr, 0);
  pool.pool().set_observer(observer_);
  list_eager(pool);
  return pool;
}

// Requires: the lock is held.
void CachingAllocator::list_eager(StreamPool& pool) noexcept {
  std::atomic<StreamPool*>& bucket = eager_[bucket_of(pool.stream())];
  pool.next.store(bucket.load(std::memory_order_relaxed), std::memory_order_release);
  bucket.store(&pool, std::memory_order_release);
}

// A thread that walks the list goes on in the list where the pool is next, whose end it finds. What
// it misses by that it looks for again under the lock. Requires: the lock is held.
void CachingAllocator::unlist_eager(StreamPool& pool, StreamId former) noexcept {
  std::atomic<StreamPool*>* link = &eager_[bucket_of(former)];
  while (link->load(std::memory_order_relaxed) != &pool)
    link = &link->load(std::memory_order_relaxed)->next;
  link->store(pool.next.load(std::memory_order_relaxed), std::memory_order_release);
}

StreamPool& CachingAllocator::owner_of(void* address) const {
  if (address == nullptr) throw InvalidArgument("null is no block; an empty tensor has none");
  StreamPool* const pool = map_.find(reinterpret_cast<std::uintptr_t>(address));
  if (pool == nullptr) [[unlikely]] {
    throw InvalidArgument(
        fmt::format("{} is in no segment of this allocator: it is foreign, or its pool has ended",
                    fmt::ptr(address)));
  }
  return *pool;
}

void CachingAllocator::free(void* address) {
  StreamPool& pool = owner_of(address);
  if (pool.owner() == nullptr) [[likely]] {
    pool.free(address);
    return;
  }
  pool.owner()->free(pool, address);
  // The pool may not exist any more from here on.
  if (unused_pools_ > 0) sweep();
}

void CachingAllocator::free(void* address, StreamId stream) {
  use(address, stream);
  free(address);
}

void CachingAllocator::use(void* address, StreamId stream) {
  StreamPool& pool = owner_of(address);
  pool.owner() == nullptr ? pool.use(address, stream) : pool.owner()->use(pool, address, stream);
}

PoolHandle CachingAllocator::make_pool(PrivatePoolOptions options) {
  PrivatePool* pool = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const PoolId id = ++last_id_;
    auto made = std::make_unique<PrivatePool>(cache_, map_, id, std::move(options), observer_);
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
    StreamPool* pool = nullptr;
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

void CachingAllocator::retire(StreamId stream, StreamProgress::Work work) noexcept {
  {
    const std::lock_guard lock(mutex_);
    has_retired_ = true;
    for (StreamPool& pool : eager_pools_)
      pool.retire(stream);
    for (auto& [id, owned] : private_pools_)
      owned.pool->retire(stream);
  }
  cache_.progress().retire(stream, work);
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
  for (const StreamPool& pool : eager_pools_) {
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

void CachingAllocator::set_observer(PoolObserver* observer) {
  const std::lock_guard lock(mutex_);
  observer_ = observer;
  for (StreamPool& pool : eager_pools_)
    pool.pool().set_observer(observer);
  for (auto& [id, owned] : private_pools_)
    owned.pool->set_observer(observer);
}

CaptureScope CachingAllocator::begin_capture(const PoolHandle& pool,
                                             std::span<const StreamId> streams,
                                             const MakeCapture& make) {
  if (!pool) throw InvalidArgument("a capture needs a pool; make one with make_pool()");
  return CaptureScope(*this, pool, streams, make);
}

ThreadRoute::ThreadRoute(CachingAllocator& allocator, PoolHandle pool)
    : allocator_(allocator), route_{allocator.next_route(), 0, std::move(pool)}, outer_(innermost) {
  innermost = this;
}

ThreadRoute::~ThreadRoute() {
  CGTREE_CHECK(innermost == this);
  innermost = outer_;
}

StreamRoute::StreamRoute(CachingAllocator& allocator, StreamId stream, PoolHandle pool)
    : allocator_(allocator), number_(allocator.next_route()) {
  allocator_.add_route({number_, stream, std::move(pool)});
}

StreamRoute::~StreamRoute() {
  allocator_.remove_route(number_);
}

CaptureScope::CaptureScope(CachingAllocator& allocator, PoolHandle pool,
                           std::span<const StreamId> streams, const MakeCapture& make)
    : allocator_(&allocator), pool_(std::move(pool)) {
  routes_.reserve(streams.size());
  pool_.pool_->begin_capture(make);
  try {
    for (const StreamId stream : streams) {
      const std::uint64_t number = allocator.next_route();
      allocator.add_route({number, stream, pool_, true});
      routes_.push_back(number);
    }
  } catch (...) {
    end();
    throw;
  }
}

CaptureScope::CaptureScope(CaptureScope&& other) noexcept
    : allocator_(std::exchange(other.allocator_, nullptr)),
      pool_(std::move(other.pool_)),
      routes_(std::move(other.routes_)) {
}

void CaptureScope::end() noexcept {
  CachingAllocator* const allocator = std::exchange(allocator_, nullptr);
  if (allocator == nullptr) return;
  for (const std::uint64_t number : routes_)
    allocator->remove_route(number);
  pool_.pool_->end_capture();
  pool_ = PoolHandle();
}

}  // namespace cgtree
