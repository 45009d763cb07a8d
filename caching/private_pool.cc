// Gives streams and captures their pools.
#include "caching/private_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "allocator/pool/block.h"
#include "base/error.h"
#include "base/log_event.h"

namespace cgtree {

PrivatePool::PrivatePool(SegmentCache& cache, SegmentMap& map, PoolId id,
                         PrivatePoolOptions options, PoolObserver* observer)
    : cache_(cache), map_(map), id_(id), options_(std::move(options)), observer_(observer) {
}

// Requires: the lock is held.
PrivatePool::Member& PrivatePool::make_member(StreamId stream) {
  PoolOptions options = options_.pool;
  options.stream = stream;
  SegmentAccount& account = options_.account != nullptr ? *options_.account : cache_.own_account();
  auto pool = std::make_unique<StreamPool>(cache_, account, map_, options, this, members_.size());
  pool->set_keeps(keeps());
  pool->pool().set_observer(observer_);
  return members_.emplace_back(Member{std::move(pool)});
}

// Returns the member for work outside of a capture, or null. Requires: the lock is held.
PrivatePool::Member* PrivatePool::find_member(StreamId stream) {
  for (Member& member : members_) {
    if (!member.in_capture && member.pool->stream() == stream) return &member;
  }
  return nullptr;
}

// Makes the member if there is none: of that of a stream whose work has all ended, or of nothing.
// Requires: the lock is held.
PrivatePool::Member& PrivatePool::member_for(StreamId stream) {
  if (Member* const member = find_member(stream)) return *member;
  for (Member& member : members_) {
    if (member.in_capture || member.busy > 0 || !member.pool->take_over(stream)) continue;
    member.may_be_in_use = false;
    return member;
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
  member.was_used = member.may_be_in_use = true;
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

void* PrivatePool::try_allocate_free(std::size_t bytes, StreamId stream) {
  if (bytes > kLargestRequest) return nullptr;
  {
    const std::lock_guard lock(mutex_);
    const bool has_room = std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
      return !member.in_capture && member.pool->stream() == stream &&
             member.pool->pool().largest_free_block() >= block_bytes(bytes);
    });
    if (!has_room) return nullptr;
  }
  return allocate(bytes, stream);
}

std::shared_ptr<OpenCapture> PrivatePool::session() const {
  const std::lock_guard lock(mutex_);
  return session_;
}

void* PrivatePool::allocate_captured(std::size_t bytes, StreamId stream) {
  const std::shared_ptr<OpenCapture> capture = session();
  if (!capture) throw InvalidArgument(fmt::format("pool {} has no capture open", id_));
  return capture->allocate(bytes, stream);
}

bool PrivatePool::is_capturing(StreamId stream) const {
  const std::shared_ptr<OpenCapture> capture = session();
  return capture != nullptr && capture->has(stream);
}

void PrivatePool::free(StreamPool& pool, void* address) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<OpenCapture> capture = session_;
  Member& member = members_[pool.number()];
  const bool is_captured = capture != nullptr && member.in_capture;
  if (!is_captured) member.was_used = member.may_be_in_use = true;
  lock.unlock();
  if (is_captured && capture->free(address, pool.number())) return;
  pool.free(address);
}

void PrivatePool::use(StreamPool& pool, void* address, StreamId stream) {
  const std::shared_ptr<OpenCapture> capture = session();
  if (capture != nullptr && capture->use(address, stream)) return;
  pool.use(address, stream);
}

// Takes the points before frees are deferred, because the device cannot be queried in the capture.
void PrivatePool::begin_capture(const MakeCapture& make) {
  std::unique_lock lock(mutex_);
  if (session_ != nullptr || is_opening_) {
    throw InvalidArgument(fmt::format(
        "pool {} has a capture open already; one pool serves one capture at a time", id_));
  }
  is_opening_ = true;
  for (Member& member : members_) {
    member.was_used = false;
    member.point = cache_.progress().now(member.pool->stream());
  }
  lock.unlock();
  std::shared_ptr<OpenCapture> session;
  try {
    cache_.progress().poll();
    session = make(*this, cache_.defer_frees());
  } catch (...) {
    lock.lock();
    is_opening_ = false;
    throw;
  }
  lock.lock();
  is_opening_ = false;
  session_ = std::move(session);
}

void PrivatePool::end_capture() noexcept {
  const std::shared_ptr<OpenCapture> capture = session();
  if (capture == nullptr) return;
  capture->end();
  const std::lock_guard lock(mutex_);
  session_ = nullptr;
}

std::size_t PrivatePool::deferred_blocks() const {
  const std::shared_ptr<OpenCapture> capture = session();
  return capture == nullptr ? 0 : capture->deferred_blocks();
}

void PrivatePool::move_pool(StreamId from, StreamId to) noexcept {
  const std::lock_guard lock(mutex_);
  for (Member& member : members_) {
    if (!member.in_capture && member.pool->stream() == from) return member.pool->set_stream(to);
  }
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

std::size_t PrivatePool::count() const {
  const std::lock_guard lock(mutex_);
  return members_.size();
}

Pool& PrivatePool::pool(std::size_t number) {
  const std::lock_guard lock(mutex_);
  return members_[number].pool->pool();
}

bool PrivatePool::try_take(std::size_t number, StreamId stream) {
  const std::lock_guard lock(mutex_);
  Member& member = members_[number];
  if (member.in_capture || member.busy > 0) return false;
  const bool is_idle = !member.was_used && cache_.progress().is_complete(member.point);
  const bool is_same = member.pool->stream() == stream;
  // The graph may be launched on another stream, which is not ordered after eager work on this one.
  if (!is_idle && (!is_same || member.may_be_in_use)) return false;
  if (is_idle) member.may_be_in_use = false;
  if (!is_same) member.pool->change_stream(stream);
  member.set_in_capture(true);
  return true;
}

void PrivatePool::hand_back(std::size_t number, StreamId stream) noexcept {
  const std::lock_guard lock(mutex_);
  members_[number].set_in_capture(false);
  members_[number].pool->set_stream(stream);
}

std::size_t PrivatePool::add(StreamId stream) {
  const std::lock_guard lock(mutex_);
  Member& member = make_member(stream);
  member.set_in_capture(true);
  return member.pool->number();
}

void PrivatePool::expect_live(std::size_t number, void* address) {
  const std::lock_guard lock(mutex_);
  members_[number].pool->expect_live(address);
}

void PrivatePool::use_outside(std::size_t number, void* address, StreamId stream) {
  const std::lock_guard lock(mutex_);
  members_[number].pool->use(address, stream);
}

void PrivatePool::free_outside(std::size_t number, void* address) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    members_[number].pool->free(address);
  } catch (const Error& error) {
    log_event(LogLevel::kError, "free_after_capture_failed pool={} error=\"{}\"",
              options_.pool.name, error.message());
  }
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
    StreamPool* pool = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (i == members_.size()) break;
      pool = members_[i].pool.get();
    }
    pool->drain();
    if (!keeps()) pool->pool().trim();
  }
}

void PrivatePool::set_observer(PoolObserver* observer) noexcept {
  const std::lock_guard lock(mutex_);
  observer_ = observer;
  for (Member& member : members_)
    member.pool->pool().set_observer(observer);
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
