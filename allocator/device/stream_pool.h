// StreamPool: a pool for the work of one stream, whose blocks other streams may use for a while.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "allocator/device/pool_segments.h"
#include "allocator/pool/pool.h"
#include "allocator/segments/segment_cache.h"
#include "base/mutex.h"

namespace cgtree {

// In a StreamPool a block that only the pool's stream used is free at once. A block that other
// streams used is pending until the work that they had at the free has ended. Pending blocks are
// examined when the pool would have to grow, and every kLookEvery allocations.
//
// Thread safety: all functions may be called from any thread. The lock guards uses and pending
// frees only; a block without them takes only the pool's lock.
class StreamPool {
 public:
  // The cache and the account must outlive the pool.
  StreamPool(SegmentCache& cache, SegmentAccount& account, const PoolOptions& options)
      : StreamPool(cache, std::make_unique<PoolSegments>(cache, account), options) {}
  // `segments`: of that cache.
  StreamPool(SegmentCache& cache, std::unique_ptr<PoolSegments> segments,
             const PoolOptions& options);
  StreamPool(const StreamPool&) = delete;
  StreamPool& operator=(const StreamPool&) = delete;

  StreamId stream() const { return segments_->stream(); }
  // Moves the pool of a retired stream to another stream. Returns false if the pool's stream was
  // not retired, or its work may not have ended.
  bool take_over(StreamId stream);
  Pool& pool() { return pool_; }
  const Pool& pool() const { return pool_; }

  void* allocate(std::size_t bytes) {
    if (pending_count_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      look_at_pending(bytes);
    }
    return pool_.allocate(bytes);
  }

  // Throws InvalidArgument if the block is pending already.
  void free(void* address) {
    const std::size_t special = used_count_.load(std::memory_order_relaxed) +
                                pending_count_.load(std::memory_order_relaxed);
    if (special == 0 || !free_used(address)) [[likely]] {
      pool_.free(address);
    }
  }

  // Notes that work on `stream` uses the block. Throws InvalidArgument unless `address` is the
  // start of a live block, and std::bad_alloc.
  void use(void* address, StreamId stream);

  // Must be called before a stream is destroyed: live blocks that it uses will wait, once freed,
  // for the work submitted to it by now. If it is the pool's stream, the pool allocates nothing
  // until another stream takes it over.
  void retire(StreamId stream) noexcept;

  // Frees the pending blocks whose work is known to have ended.
  void drain() noexcept;

  std::size_t pending_blocks() const { return pending_count_; }

 private:
  static constexpr std::size_t kLookEvery = 32;

  using Uses = std::map<void*, std::vector<StreamPoint>>;

  std::unique_ptr<PoolSegments> drained(std::unique_ptr<PoolSegments> segments);
  void expect_not_pending(void* address) const;
  void add_use(void* address, StreamId stream);
  bool free_used(void* address);
  void look_at_pending(std::size_t bytes);
  bool is_complete(const std::vector<StreamPoint>& points) const noexcept;

  SegmentCache& cache_;
  const std::unique_ptr<PoolSegments> segments_;
  // Guards both maps, the count of allocations, and the last two members.
  Mutex<LockRank::kStreamPool> mutex_;
  Uses used_;     // live blocks, with the streams that use them; number 0 until these retire
  Uses pending_;  // freed blocks
  std::size_t allocations_ = 0;
  std::atomic<std::size_t> used_count_{0};
  std::atomic<std::size_t> pending_count_{0};
  Pool pool_;
  bool is_retired_ = false;  // the pool's stream
  StreamPoint last_;         // after all its work, once it is retired
};

}  // namespace cgtree
