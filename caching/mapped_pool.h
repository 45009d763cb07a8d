// MappedPool: a StreamPool whose blocks are found by their addresses.
#pragma once

#include <atomic>

#include "allocator/device/stream_pool.h"
#include "caching/segment_map.h"

namespace cgtree {

// Thread safety: all functions may be called from any thread.
class MappedPool final : public StreamPool {
 public:
  // Both must outlive the pool. Requires: its segments do not grow (Growth::kFast).
  MappedPool(SegmentCache& cache, SegmentMap& map, const PoolOptions& options);

  // The next pool of a list of the eager pools.
  std::atomic<MappedPool*> next{nullptr};
};

}  // namespace cgtree
