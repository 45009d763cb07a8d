// A pool for the work of one stream, whose blocks other streams may use for a while.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "allocator/pool/pool.h"
#include "allocator/segments/segment_cache.h"
#include "allocator/caching/segment_map.h"
#include "allocator/segments/segment_source.h"
#include "allocator/segments/segment_user.h"

namespace cgtree {

class PrivatePool;

// The segments of a StreamPool on their way: registered by address, and kept while somebody counts
// on them.
class PoolSegments final : public SegmentSource, public SegmentUser {
 public:
  // Without a source they are the cache's own.
  PoolSegments(StreamPool& owner, SegmentCache& cache, SegmentCache::Source source,
               SegmentMap& map);

  // All of them are the segments of `stream`, whatever the pool was made for.
  std::atomic<StreamId> stream{0};
  // Whether unused segments stay when others ask for them.
  std::atomic<bool> keeps{false};

  void* allocate(std::size_t bytes, StreamId) override;
  void free(void* segment, std::size_t bytes, StreamId) noexcept override;
  bool grow(void* segment, std::size_t bytes, std::size_t grown, StreamId) override;
  std::size_t shrink(void* segment, std::size_t bytes, std::size_t least,
                     StreamId) noexcept override;
  void attach(SegmentUser& user) override;
  void detach(SegmentUser& user) noexcept override;

  std::size_t give_back_unused() noexcept override;
  PoolUse use() const override { return user_->use(); }

 private:
  StreamPool& owner_;
  SegmentCache& cache_;
  const SegmentCache::Source source_;
  SegmentMap& map_;
  SegmentUser* user_ = nullptr;  // the pool
};

// A block that only the pool's stream used is free at once. Where others used it too, it is pending
// until the work that they had at the free is done. Pending blocks are looked at when the pool
// would have to grow, and every so many allocations.
//
// Threads: any. The lock guards uses and pending frees only; a block without them takes the pool's.
class StreamPool {
 public:
  StreamPool(SegmentCache& cache, SegmentCache::Source source, SegmentMap& map, PoolOptions options,
             PrivatePool* owner, std::size_t number);
  StreamPool(const StreamPool&) = delete;
  StreamPool& operator=(const StreamPool&) = delete;

  PrivatePool* owner() const { return owner_; }   // null: an eager pool
  std::size_t number() const { return number_; }  // among its owner's
  StreamId stream() const { return segments_.stream; }
  void set_stream(StreamId stream) { segments_.stream = stream; }
  // From now on it is a pool for another stream; live blocks wait for the one before when freed.
  void change_stream(StreamId stream);
  void set_keeps(bool keeps) { segments_.keeps = keeps; }
  Pool& pool() { return pool_; }
  const Pool& pool() const { return pool_; }

  void* allocate(std::size_t bytes) {
    if (pending_count_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      look_at_pending(bytes);
    }
    return pool_.allocate(bytes);
  }

  // Throws InvalidArgument when the block is pending already.
  void free(void* address) {
    const std::size_t special = used_count_.load(std::memory_order_relaxed) +
                                pending_count_.load(std::memory_order_relaxed);
    if (special == 0 || !free_used(address)) [[likely]] {
      pool_.free(address);
    }
  }

  // Throws std::bad_alloc. Requires that the block is live.
  void use(void* address, StreamId stream);

  // Frees what is known to be no longer in use.
  void drain() noexcept;

  std::size_t pending_blocks() const { return pending_count_; }

  // Of a list that is only ever added to.
  StreamPool* next = nullptr;

 private:
  // Asks the device about pending blocks after so many allocations at the latest.
  static constexpr std::size_t kLookEvery = 32;

  using Uses = std::map<void*, std::vector<StreamPoint>>;

  void add_use(void* address, StreamId stream);
  bool free_used(void* address);
  void look_at_pending(std::size_t bytes);
  bool is_complete(const std::vector<StreamPoint>& points) const noexcept;

  SegmentCache& cache_;
  PrivatePool* const owner_;
  const std::size_t number_;
  PoolSegments segments_;
  std::mutex mutex_;  // guards both maps and the count of allocations
  Uses used_;         // live blocks, with the streams that use them
  Uses pending_;      // freed ones
  std::size_t allocations_ = 0;
  std::atomic<std::size_t> used_count_{0};
  std::atomic<std::size_t> pending_count_{0};
  Pool pool_;
};

}  // namespace cgtree
