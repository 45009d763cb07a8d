// What a pool has counted, under PyTorch's names.
#pragma once

#include <cstddef>
#include <string>

namespace cgtree {

// Invariants: allocated - freed == current <= peak.
struct Counter {
  std::size_t current = 0;
  std::size_t peak = 0;       // of current, since the last reset_peaks()
  std::size_t allocated = 0;  // sum of all increases, since the last reset_totals()
  std::size_t freed = 0;      // sum of all decreases, since the last reset_totals()

  friend bool operator==(const Counter&, const Counter&) = default;
};

// Blocks are as large as rounded; segments are what the source has given. The first three are of
// live blocks. PyTorch's `active` and `active_bytes` are `allocation` and `allocated_bytes` here: a
// block that is freed is free at once.
#define CGTREE_POOL_COUNTERS(X) \
  X(allocated_bytes)            \
  X(requested_bytes)            \
  X(allocation)                 \
  X(segment)                    \
  X(reserved_bytes)
// Events since the last reset_totals(): allocations refused; refusals (of the source, or for the
// pool's limit) after which the source was asked again; times the source gave or grew, and took
// back or shrank, a segment; calls of checkpoint() and of restore() or restore_live() that
// succeeded, and segments whose blocks the latter changed.
#define CGTREE_POOL_EVENTS(X) \
  X(num_ooms)                 \
  X(num_alloc_retries)        \
  X(num_device_alloc)         \
  X(num_device_free)          \
  X(checkpoints_taken)        \
  X(restores)                 \
  X(segments_touched)

struct PoolCounters {
#define CGTREE_DECLARE(name) Counter name;
  CGTREE_POOL_COUNTERS(CGTREE_DECLARE)
#undef CGTREE_DECLARE

  friend bool operator==(const PoolCounters&, const PoolCounters&) = default;
};

struct PoolEvents {
#define CGTREE_DECLARE(name) std::size_t name = 0;
  CGTREE_POOL_EVENTS(CGTREE_DECLARE)
#undef CGTREE_DECLARE

  friend bool operator==(const PoolEvents&, const PoolEvents&) = default;
};

// A segment and its blocks are counted in `small_pool` when it had at most 2 MiB at first and its
// pool does not grow in place, else in `large_pool`. PyTorch goes by the request, and keeps small
// ones out of large segments; here they may lie there, and are counted there, so that in each class
// live bytes are part of the reserved ones.
struct PoolStatistics : PoolCounters, PoolEvents {
  PoolCounters small_pool;
  PoolCounters large_pool;
  std::size_t largest_free_block = 0;  // bytes, at the time of asking

  friend bool operator==(const PoolStatistics&, const PoolStatistics&) = default;
};

// What is worked out by a walk over all blocks.
struct PoolGauges {
  struct Split {
    std::size_t blocks = 0;
    std::size_t bytes = 0;
    friend bool operator==(const Split&, const Split&) = default;
  };
  // Free blocks of segments that have others.
  Split small_pool;
  Split large_pool;
  std::size_t bytes_pinned = 0;  // of segments, that checkpoints have

  friend bool operator==(const PoolGauges&, const PoolGauges&) = default;
};

// A JSON object: {"allocated_bytes": {"current": ..., "peak": ..., ...}, ..., "num_ooms": ...}.
std::string to_json(const PoolStatistics& statistics);

// A JSON object under the names of torch.cuda.memory_stats(): {"allocated_bytes.all.current": ...,
// ...}. Of `inactive_split` and `inactive_split_bytes` only `current` is there: what else PyTorch
// has of them would have to be counted at every allocation. Beside PyTorch's: checkpoints, and
//   fragmentation = 1 - largest_free_block / free bytes, 0 without any
//   utilization   = peak of live bytes / peak of reserved bytes, 0 without any
std::string to_flat_json(const PoolStatistics& statistics, const PoolGauges& gauges);

}  // namespace cgtree
