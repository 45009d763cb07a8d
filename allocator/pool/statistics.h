// PoolStatistics: what a pool has counted, under PyTorch's names.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/check.h"

namespace cgtree {

// Invariants: allocated - freed == current <= peak.
struct Counter {
  std::size_t current = 0;
  std::size_t peak = 0;       // of current, since the last reset_peaks()
  std::size_t allocated = 0;  // sum of all increases
  std::size_t freed = 0;      // sum of all decreases

  friend bool operator==(const Counter&, const Counter&) = default;
};

// The first three counters count live blocks, with their rounded sizes; the other two count
// segments. PyTorch's `active` and `active_bytes` are `allocation` and `allocated_bytes` here,
// because a block that is freed is free at once.
#define CGTREE_POOL_COUNTERS(X) \
  X(allocated_bytes)            \
  X(requested_bytes)            \
  X(allocation)                 \
  X(segment)                    \
  X(reserved_bytes)
// These events are counted since the last reset_totals(): allocations that were refused; refusals
// (by the source, or for the pool's limit) after which the source was asked again; segments that
// the source gave or grew, and took back or shrank; calls of checkpoint() and of restore() or
// restore_live() that succeeded, and segments whose blocks the latter changed.
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

// A segment and its blocks are counted in `small_pool` if it had at most 2 MiB at first and its
// pool does not grow in place, else in `large_pool`. PyTorch goes by the request, and keeps small
// ones out of large segments; here they may lie there and are counted there, so that in each class
// the live bytes are part of the reserved ones.
struct PoolStatistics : PoolCounters, PoolEvents {
  PoolCounters small_pool;
  PoolCounters large_pool;
  std::size_t largest_free_block = 0;  // bytes, at the time of asking, of what no thread keeps

  friend bool operator==(const PoolStatistics&, const PoolStatistics&) = default;
};

// PoolGauges are worked out by a walk over all blocks.
struct PoolGauges {
  struct Split {
    std::size_t blocks = 0;
    std::size_t bytes = 0;
    friend bool operator==(const Split&, const Split&) = default;
  };
  // Free blocks of segments that also have live blocks.
  Split small_pool;
  Split large_pool;
  std::size_t bytes_pinned = 0;  // bytes of segments that checkpoints have

  friend bool operator==(const PoolGauges&, const PoolGauges&) = default;
};

// An Amount is a number of blocks or of segments, with their bytes.
struct Amount {
  std::size_t count = 0;
  std::size_t bytes = 0;
  std::size_t requested = 0;  // 0 for segments

  // Modulo 2^64: a difference may be on its way to a sum that is not negative.
  Amount& operator+=(const Amount& other) {
    count += other.count;
    bytes += other.bytes;
    requested += other.requested;
    return *this;
  }
  Amount operator-() const { return {0 - count, 0 - bytes, 0 - requested}; }
};

// A Flow is what has been allocated and freed beside the tallies of a pool, in large and in small
// segments. Either may be negative.
struct Flow {
  std::array<Amount, 2> began;
  std::array<Amount, 2> ended;

  Flow& operator+=(const Flow& other) {
    for (const bool is_small : {false, true}) {
      began[is_small] += other.began[is_small];
      ended[is_small] += other.ended[is_small];
    }
    return *this;
  }
};

// Adds a flow to the statistics of the same moment. The peaks stay, or rise to the current values.
void add_to(PoolStatistics& statistics, const Flow& flow);

// Tallies are the counters of a pool as it keeps them: no more than cannot be derived. What was
// freed is allocated - current, and what all segments have is the sum of both classes; but the peak
// of a sum is not the sum of the peaks.
class Tallies {
 public:
  void blocks_began(bool is_small, const Amount& amount) {
    Class& tally = classes_[is_small];
    tally.allocation.increase(amount.count);
    tally.allocated_bytes.increase(amount.bytes);
    tally.requested_bytes.increase(amount.requested);
    raise(peaks_.allocation, &Class::allocation);
    raise(peaks_.allocated_bytes, &Class::allocated_bytes);
    raise(peaks_.requested_bytes, &Class::requested_bytes);
  }
  void blocks_ended(bool is_small, const Amount& amount) {
    Class& tally = classes_[is_small];
    tally.allocation.decrease(amount.count);
    tally.allocated_bytes.decrease(amount.bytes);
    tally.requested_bytes.decrease(amount.requested);
  }
  void segments_began(bool is_small, const Amount& amount) {
    classes_[is_small].segment.increase(amount.count);
    classes_[is_small].reserved_bytes.increase(amount.bytes);
    raise(peaks_.segment, &Class::segment);
    raise(peaks_.reserved_bytes, &Class::reserved_bytes);
  }
  void segments_ended(bool is_small, const Amount& amount) {
    classes_[is_small].segment.decrease(amount.count);
    classes_[is_small].reserved_bytes.decrease(amount.bytes);
  }

  std::size_t live_blocks() const { return sum(&Class::allocation); }
  std::size_t live_bytes() const { return sum(&Class::allocated_bytes); }
  std::size_t reserved_bytes() const { return sum(&Class::reserved_bytes); }
  std::size_t peak_live_bytes() const { return peaks_.allocated_bytes; }
  std::size_t peak_reserved_bytes() const { return peaks_.reserved_bytes; }
  Amount live(bool is_small) const {
    const Class& tally = classes_[is_small];
    return {tally.allocation.current, tally.allocated_bytes.current, tally.requested_bytes.current};
  }

  PoolStatistics statistics() const;
  // Sets the peaks to the current values.
  void reset_peaks();

  PoolEvents events;

 private:
  struct Tally {
    std::size_t current = 0;
    std::size_t peak = 0;
    std::size_t allocated = 0;

    void increase(std::size_t amount) {
      current += amount;
      allocated += amount;
      if (current > peak) [[unlikely]] {  // a branch, because a store each time costs more
        peak = current;
      }
    }
    void decrease(std::size_t amount) {
      CGTREE_DCHECK(amount <= current);
      current -= amount;
    }
  };
  struct Class {
#define CGTREE_DECLARE(name) Tally name;
    CGTREE_POOL_COUNTERS(CGTREE_DECLARE)
#undef CGTREE_DECLARE
  };
  struct Peaks {
#define CGTREE_DECLARE(name) std::size_t name = 0;
    CGTREE_POOL_COUNTERS(CGTREE_DECLARE)
#undef CGTREE_DECLARE
  };

  std::size_t sum(Tally Class::*tally) const {
    return (classes_[0].*tally).current + (classes_[1].*tally).current;
  }
  void raise(std::size_t& peak, Tally Class::*tally) {
    const std::size_t now = sum(tally);
    if (now > peak) [[unlikely]] {
      peak = now;
    }
  }

  std::array<Class, 2> classes_;  // large, small
  Peaks peaks_;                   // of both together
};

}  // namespace cgtree
