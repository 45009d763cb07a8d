// replay(): replays a trace on a pool, and measures the pool's time and memory.
#pragma once

#include <cstddef>

#include "allocator/pool/pool.h"
#include "allocator/pool/segment_source.h"
#include "tests/support/rmm_log.h"

namespace cgtree::tools {

struct ReplayResult {
  std::size_t operations = 0;            // allocations and frees
  std::size_t peak_live_bytes = 0;       // the bytes asked for
  std::size_t peak_allocated_bytes = 0;  // in blocks, rounded
  std::size_t peak_reserved_bytes = 0;   // in segments
  std::size_t segments = 0;              // at the end
  std::size_t segment_requests = 0;      // calls of the source, including refused ones
  std::size_t first_unmaps = 0;          // of runs of pages, in the first replay
  std::size_t later_unmaps = 0;          // in the timed replays
  // peak_live_bytes / peak_reserved_bytes.
  double utilization = 0;
  // 1 - largest free block / all free bytes, at the peak of live bytes; 0 if no bytes were free.
  double fragmentation = 0;
  // Of an allocation and a free on a pool that has its segments: the least of all rounds.
  double ns_per_pair = 0;
};

struct ReplayOptions {
  int rounds = 20;  // timed replays, > 0; they follow the one that measures memory
  Growth growth = Growth::kFast;
};

// With Growth::kInPages the source has to map pages. Throws OutOfMemory if the source has no room,
// and other exceptions of the source.
ReplayResult replay(const Trace& trace, SegmentSource& source, const ReplayOptions& options);

}  // namespace cgtree::tools
