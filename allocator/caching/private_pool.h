// A pool with an identity: what a graph, or a part of a program, allocates from alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "allocator/caching/capture_pools.h"
#include "allocator/caching/capture_session.h"
#include "allocator/caching/stream_pool.h"

namespace cgtree {

// Never used twice by one allocator.
using PoolId = std::uint64_t;

struct PrivatePoolOptions {
  PoolOptions pool = {.name = "private"};
  // Where its segments come from; null: from the device. It lives as long as the pool's segments.
  std::shared_ptr<SegmentSource> source = nullptr;
  // Whether its free blocks may serve others when the device has no room.
  bool serves_on_oom = false;
};

// One StreamPool per stream outside of captures; a capture takes over those that are idle. One
// capture at a time.
//
// Threads: any.
class PrivatePool final : public CapturePools {
 public:
  PrivatePool(SegmentCache& cache, SegmentMap& map, PoolId id, PrivatePoolOptions options,
              PoolObserver* observer);

  PoolId id() const { return id_; }
  const PrivatePoolOptions& options() const { return options_; }

  // Outside of the capture.
  void* allocate(std::size_t bytes, StreamId stream);
  // Of free memory only; null without a block that is large enough.
  void* try_allocate_free(std::size_t bytes, StreamId stream);
  // In the capture that is open.
  void* allocate_captured(std::size_t bytes, StreamId stream);
  // The block is of the capture, if one is open, or not.
  void free(StreamPool& pool, void* address);
  void use(StreamPool& pool, void* address, StreamId stream);

  // Throws InvalidArgument when a capture is open already. Frees are held from here on.
  void begin_capture(CaptureOrder& order);
  void end_capture() noexcept;
  std::size_t deferred_blocks() const;

  // Segments stay while it is in use, and as long as they have live blocks.
  void set_in_use(bool in_use) noexcept;
  bool is_in_use() const { return in_use_; }
  bool is_empty();  // without a live or pending block
  // Frees what is no longer in use; gives wholly free segments back unless the pool is in use.
  void trim() noexcept;
  void set_observer(PoolObserver* observer) noexcept;
  PoolStatistics statistics() const;

  // CapturePools, for the session.
  std::size_t count() const override;
  Pool& pool(std::size_t number) override;
  bool try_take(std::size_t number, StreamId stream) override;
  void hand_back(std::size_t number, StreamId stream) noexcept override;
  std::size_t add(StreamId stream) override;
  void use_outside(std::size_t number, void* address, StreamId stream) override;
  void free_outside(std::size_t number, void* address) noexcept override;

 private:
  struct Member {
    std::unique_ptr<StreamPool> pool;
    bool in_capture = false;
    bool was_used = false;  // outside, since the capture began
    std::size_t busy = 0;   // allocations outside that are on their way
    StreamPoint point;      // of its stream when the capture began
  };

  Member& make_member(StreamId stream);
  Member& member_for(StreamId stream);
  std::shared_ptr<CaptureSession> session() const;

  SegmentCache& cache_;
  SegmentMap& map_;
  const PoolId id_;
  const PrivatePoolOptions options_;
  std::atomic<bool> in_use_{true};
  mutable std::mutex mutex_;  // guards all below
  PoolObserver* observer_;
  std::deque<Member> members_;  // by number; references are stable
  std::shared_ptr<CaptureSession> session_;
  bool is_opening_ = false;
};

// Sums over pools. The peak of a sum is not known: it is the sum of the peaks, an upper bound.
void add_to(PoolStatistics& sum, const PoolStatistics& statistics);

}  // namespace cgtree
