// Delays the reuse of blocks until the work of other streams on them is done.
#include "allocator/device/stream_pool.h"

#include <algorithm>
#include <utility>

#include "allocator/pool/block.h"
#include "base/check.h"
#include "base/error.h"
#include "base/format.h"

namespace cgtree {
StreamPool::StreamPool(SegmentCache& cache, std::unique_ptr<PoolSegments> segments,
                       const PoolOptions& options)
    : cache_(cache), segments_(drained(std::move(segments))), pool_(*segments_, options) {
  segments_->set_stream(options.stream);
}

std::unique_ptr<PoolSegments> StreamPool::drained(std::unique_ptr<PoolSegments> segments) {
  segments->set_before_give_back([this] { drain(); });
  return segments;
}

bool StreamPool::take_over(StreamId stream) {
  const std::lock_guard lock(mutex_);
  if (!is_retired_ || !cache_.progress().is_complete(last_)) return false;
  is_retired_ = false;
  segments_->set_stream(stream);
  return true;
}

void StreamPool::use(void* address, StreamId stream) {
  // The pool's own stream delays nothing, so only the address must be checked.
  if (stream == this->stream() && pending_count_.load(std::memory_order_relaxed) == 0) {
    return pool_.expect_live(address);
  }
  const std::lock_guard lock(mutex_);
  expect_not_pending(address);
  pool_.expect_live(address);
  if (stream == this->stream()) return;
  cache_.progress().begin(stream);
  add_use(address, stream);
}

// Requires: the lock is held.
void StreamPool::expect_not_pending(void* address) const {
  if (!pending_.contains(address)) return;
  throw InvalidArgument(str_format(
      "{} is freed already, and waits for the streams that use it; free a block once, after its "
      "last use",
      static_cast<const void*>(address)));
}

// Requires: the lock is held.
void StreamPool::add_use(void* address, StreamId stream) {
  std::vector<StreamPoint>& uses = used_[address];
  used_count_.store(used_.size(), std::memory_order_relaxed);
  const auto is_same = [&](const StreamPoint& use) { return use == StreamPoint{stream, 0}; };
  if (std::none_of(uses.begin(), uses.end(), is_same)) uses.push_back({stream, 0});
}

void StreamPool::retire(StreamId stream) noexcept {
  const std::lock_guard lock(mutex_);
  for (auto& [address, uses] : used_) {
    for (StreamPoint& use : uses)
      if (use == StreamPoint{stream, 0}) use = cache_.progress().now(stream);
  }
  if (stream != this->stream()) return;
  last_ = cache_.progress().now(stream);  // a last event covers it, and therefore later frees
  is_retired_ = true;
}

// Returns false if only the pool's stream used the block.
bool StreamPool::free_used(void* address) {
  const std::lock_guard lock(mutex_);
  expect_not_pending(address);
  Uses::node_type node = used_.extract(address);
  if (node.empty()) return false;
  for (StreamPoint& use : node.mapped())
    if (use.number == 0) use = cache_.progress().now(use.stream);
  pending_.insert(std::move(node));
  used_count_.store(used_.size(), std::memory_order_relaxed);
  pending_count_.store(pending_.size(), std::memory_order_relaxed);
  return true;
}

void StreamPool::look_at_pending(std::size_t bytes) {
  const bool can_serve =
      bytes <= kLargestRequest && pool_.largest_free_block() >= block_bytes(bytes);
  {
    const std::lock_guard lock(mutex_);
    if (can_serve && ++allocations_ % kLookEvery != 0) return;
  }
  cache_.progress().poll();
  drain();
}

bool StreamPool::is_complete(const std::vector<StreamPoint>& points) const noexcept {
  return std::all_of(points.begin(), points.end(), [&](const StreamPoint& point) {
    return cache_.progress().is_complete(point);
  });
}

void StreamPool::drain() noexcept {
  const std::lock_guard lock(mutex_);
  for (auto entry = pending_.begin(); entry != pending_.end();) {
    if (is_complete(entry->second)) {
      pool_.free(entry->first);
      entry = pending_.erase(entry);
    } else {
      ++entry;
    }
  }
  pending_count_.store(pending_.size(), std::memory_order_relaxed);
}

}  // namespace cgtree
