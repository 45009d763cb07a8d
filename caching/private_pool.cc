// Gives streams their pools.
#include "caching/private_pool.h"

#include <algorithm>
#include <utility>

namespace cgtree {

PrivatePool::PrivatePool(SegmentCache& cache, SegmentMap& map, PoolId id,
                         PrivatePoolOptions options)
    : cache_(cache), map_(map), id_(id), options_(std::move(options)) {
}

// Requires: the lock is held.
PrivatePool::Member& PrivatePool::make_member(StreamId stream) {
  PoolOptions options = options_.pool;
  options.stream = stream;
  SegmentAccount& account = options_.account != nullptr ? *options_.account : cache_.own_account();
  auto pool = std::make_unique<MappedPool>(cache_, account, map_, options, /*is_private=*/true);
  pool->set_keeps(keeps());
  return members_.emplace_back(Member{std::move(pool)});
}

// Returns null if there is none. Requires: the lock is held.
PrivatePool::Member* PrivatePool::find_member(StreamId stream) {
  for (Member& member : members_) {
    if (member.pool->stream() == stream) return &member;
  }
  return nullptr;
}

// Makes the member if there is none: of that of a stream whose work has all ended, or of nothing.
// Requires: the lock is held.
PrivatePool::Member& PrivatePool::member_for(StreamId stream) {
  if (Member* const member = find_member(stream)) return *member;
  for (Member& member : members_) {
    if (member.busy == 0 && member.pool->take_over(stream)) return member;
  }
  return make_member(stream);
}

void* PrivatePool::allocate(std::size_t bytes, StreamId stream) {
  std::unique_lock lock(mutex_);
  if (find_member(stream) == nullptr) {
    lock.unlock();
    cache_.progress().poll();  // the work of a stream that was retired may have ended
    lock.lock();
  }
  Member& member = member_for(stream);
  ++member.busy;
  lock.unlock();
  void* address = nullptr;
  try {
    address = member.pool->allocate(bytes);
  } catch (...) {
    lock.lock();
    --member.busy;
    throw;
  }
  lock.lock();
  --member.busy;
  return address;
}

void PrivatePool::move_pool(StreamId from, StreamId to) noexcept {
  const std::lock_guard lock(mutex_);
  if (Member* const member = find_member(from)) member->pool->set_stream(to);
}

Pool& PrivatePool::pool_on(StreamId stream) {
  const std::lock_guard lock(mutex_);
  return member_for(stream).pool->pool();
}

std::size_t PrivatePool::pending_blocks() const {
  const std::lock_guard lock(mutex_);
  std::size_t blocks = 0;
  for (const Member& member : members_)
    blocks += member.pool->pending_blocks();
  return blocks;
}

void PrivatePool::set_in_use(bool in_use) noexcept {
  const std::lock_guard lock(mutex_);
  in_use_ = in_use;
  for (Member& member : members_)
    member.pool->set_keeps(keeps());
}

bool PrivatePool::is_empty() {
  const std::lock_guard lock(mutex_);
  return std::all_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.busy == 0 && member.pool->pool().statistics().allocation.current == 0;
  });
}

// Without the lock, as no member is removed: a pool that grows in place waits for the device.
void PrivatePool::trim() noexcept {
  for (std::size_t i = 0;; ++i) {
    MappedPool* pool = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (i == members_.size()) break;
      pool = members_[i].pool.get();
    }
    pool->drain();
    if (!keeps()) pool->pool().trim();
  }
}

void PrivatePool::retire(StreamId stream) noexcept {
  const std::lock_guard lock(mutex_);
  for (Member& member : members_)
    member.pool->retire(stream);
}

PoolStatistics PrivatePool::statistics() const {
  const std::lock_guard lock(mutex_);
  PoolStatistics sum;
  for (const Member& member : members_)
    add_to(sum, member.pool->pool().statistics());
  return sum;
}

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

}  // namespace cgtree
