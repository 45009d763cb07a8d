// AccountPool: a pool over the segments of an account, as contexts have them.
#pragma once

#include "allocator/device/pool_segments.h"
#include "allocator/pool/pool.h"

namespace cgtree {

struct AccountPool {
  AccountPool(SegmentCache& cache, SegmentAccount& account, const PoolOptions& options,
              bool keeps_segments = false)
      : segments(cache, account), pool(segments, options) {
    segments.set_stream(options.stream);
    segments.set_keeps(keeps_segments);
  }

  PoolSegments segments;
  Pool pool;
};

}  // namespace cgtree
