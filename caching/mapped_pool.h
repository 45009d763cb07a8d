// MappedPool: a StreamPool whose blocks are found by their addresses.
#pragma once

#include <atomic>
#include <cstddef>

#include "allocator/device/stream_pool.h"
#include "caching/segment_map.h"

namespace cgtree {

// Thread safety: all functions may be called from any thread.
class MappedPool final : public StreamPool {
 public:
  // All must outlive the pool. `is_private`: it is part of a PrivatePool.
  MappedPool(SegmentCache& cache, SegmentAccount& account, SegmentMap& map,
             const PoolOptions& options, bool is_private);

  bool is_private() const noexcept { return is_private_; }

  // The next pool of a list of the eager pools.
  std::atomic<MappedPool*> next{nullptr};

 private:
  const bool is_private_;
};

}  // namespace cgtree
