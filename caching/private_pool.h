// PrivatePool: a pool with an identity, from which a context, a graph or a library allocates alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "caching/mapped_pool.h"

namespace cgtree {

// A PoolId is never used twice by one allocator.
using PoolId = std::uint64_t;

struct PrivatePoolOptions {
  PoolOptions pool = {.name = "private"};
  // The budget and the source of its segments; null for those of the cache.
  std::shared_ptr<SegmentAccount> account = nullptr;
  // If true, unused segments stay while the pool has a handle, because recordings may know their
  // addresses; only Pool::trim() gives them back then. If false, they are given back when memory is
  // short.
  bool keeps_segments = true;
};

// A PrivatePool has one pool per stream.
//
// Thread safety: all functions may be called from any thread.
class PrivatePool final {
 public:
  PrivatePool(SegmentCache& cache, SegmentMap& map, PoolId id, PrivatePoolOptions options);

  PoolId id() const { return id_; }
  const PrivatePoolOptions& options() const { return options_; }

  // Makes the pool of one stream that of another, which waits for all work of the former. If all
  // work on the pool's memory has ended, `to` may be kIdle: then what is free, and what is freed
  // later, may be used on any stream at once.
  void move_pool(StreamId from, StreamId to) noexcept;

  void* allocate(std::size_t bytes, StreamId stream);

  // Returns the pool of `stream`, which is made on the first call; it stays as long as this object.
  Pool& pool_on(StreamId stream);

  std::size_t pending_blocks() const;

  // Called with false when the last handle is gone: from then on unused segments do not stay.
  void set_in_use(bool in_use) noexcept;
  bool is_in_use() const { return in_use_; }
  // Returns true without a live or pending block.
  bool is_empty();
  // Frees blocks that are no longer used; gives wholly free segments back unless they are kept.
  void trim() noexcept;
  // See StreamPool::retire().
  void retire(StreamId stream) noexcept;
  PoolStatistics statistics() const;

 private:
  struct Member {
    std::unique_ptr<MappedPool> pool;
    std::size_t busy = 0;  // allocations that are in progress
  };

  bool keeps() const { return in_use_ && options_.keeps_segments; }
  Member& make_member(StreamId stream);
  Member* find_member(StreamId stream);
  Member& member_for(StreamId stream);

  SegmentCache& cache_;
  SegmentMap& map_;
  const PoolId id_;
  const PrivatePoolOptions options_;
  std::atomic<bool> in_use_{true};
  mutable Mutex<LockRank::kPrivatePool> mutex_;  // guards all below
  std::deque<Member> members_;                   // references are stable
};

// A PoolHandle is a share in a private pool. Copies share the pool. It is in use while one of them
// exists, and gives everything back after the last copy and the last block are gone. The allocator
// must outlive it.
class PoolHandle {
 public:
  PoolHandle() = default;
  explicit PoolHandle(std::shared_ptr<PrivatePool> pool) : pool_(std::move(pool)) {}

  explicit operator bool() const noexcept { return pool_ != nullptr; }
  bool operator==(const PoolHandle&) const = default;

  PoolId id() const { return pool_->id(); }
  PoolStatistics statistics() const { return pool_->statistics(); }

  // Returns the part of the pool that serves `stream`, for users of checkpoints and layouts. It is
  // made on the first call, and valid while the handle exists. Requires: blocks that are freed here
  // are used on `stream` only.
  Pool& pool_on(StreamId stream) const { return pool_->pool_on(stream); }
  // Makes the result of pool_on(from) that of pool_on(to). Requires: `to` waits for all work that
  // has used the pool.
  void move_pool(StreamId from, StreamId to) const noexcept { pool_->move_pool(from, to); }

 private:
  friend class CachingAllocator;

  std::shared_ptr<PrivatePool> pool_;  // its deleter tells the allocator
};

// Adds the statistics of one pool to a sum. The peak of a sum is not known: it is the sum of the
// peaks, an upper bound.
void add_to(PoolStatistics& sum, const PoolStatistics& statistics);

}  // namespace cgtree
