// What a pool counts, under PyTorch's names.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/check.h"

namespace cgtree {

// Invariants: allocated - freed == current <= peak.
struct Counter {
  std::size_t current = 0;
  std::size_t peak = 0;       // of current, since the last reset_peaks()
  std::size_t allocated = 0;  // sum of all increases, since the last reset_totals()
  std::size_t freed = 0;      // sum of all decreases, since the last reset_totals()

  void increase(std::size_t amount) {
    current += amount;
    allocated += amount;
    peak = std::max(peak, current);
  }
  void decrease(std::size_t amount) {
    CGTREE_DCHECK(amount <= current);
    current -= amount;
    freed += amount;
  }

  friend bool operator==(const Counter&, const Counter&) = default;
};

// The one list of what is counted: the struct, its text and its resets are made from it.
// Counters: bytes of live blocks; bytes asked for in them; live blocks; segments; their bytes.
#define CGTREE_POOL_COUNTERS(X) \
  X(allocated_bytes)            \
  X(requested_bytes)            \
  X(allocation)                 \
  X(segment)                    \
  X(reserved_bytes)
// Events since the last reset_totals(): allocations refused, and calls of checkpoint() and of
// restore() or restore_live() that succeeded.
#define CGTREE_POOL_EVENTS(X) \
  X(num_ooms)                 \
  X(checkpoints_taken)        \
  X(restores)

struct PoolStatistics {
#define CGTREE_DECLARE(name) Counter name;
  CGTREE_POOL_COUNTERS(CGTREE_DECLARE)
#undef CGTREE_DECLARE
#define CGTREE_DECLARE(name) std::size_t name = 0;
  CGTREE_POOL_EVENTS(CGTREE_DECLARE)
#undef CGTREE_DECLARE
  std::size_t largest_free_block = 0;  // bytes, at the time of asking

  // Peaks begin anew at what is there.
  void reset_peaks();
  // Totals and events begin anew, as if what is there had just been allocated.
  void reset_totals();

  friend bool operator==(const PoolStatistics&, const PoolStatistics&) = default;
};

// A JSON object: {"allocated_bytes": {"current": ..., "peak": ..., ...}, ..., "num_ooms": ...}.
std::string to_json(const PoolStatistics& statistics);

}  // namespace cgtree
