// PoolStatistics: the counters of a pool, under PyTorch's names.
#pragma once

#include <cstddef>

#include "base/check.h"

namespace cgtree {

// Invariants: allocated - freed == current <= peak.
struct Counter {
  std::size_t current = 0;
  std::size_t peak = 0;       // of current, since the pool was made
  std::size_t allocated = 0;  // sum of all increases
  std::size_t freed = 0;      // sum of all decreases

  friend bool operator==(const Counter&, const Counter&) = default;
};

// The first three counters count live blocks, with their rounded sizes; the other two count
// segments. PyTorch's `active` and `active_bytes` are `allocation` and `allocated_bytes` here,
// because a freed block is free at once.
#define CGTREE_POOL_COUNTERS(X) \
  X(allocated_bytes)            \
  X(requested_bytes)            \
  X(allocation)                 \
  X(segment)                    \
  X(reserved_bytes)
// These events are counted since the pool was made: refused allocations; refusals by the source
// after which it was asked again; segments that the source gave or grew, and took back or shrank;
// successful calls of checkpoint() and of restore() or restore_live(), and segments whose blocks
// the latter changed.
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

struct PoolStatistics : PoolCounters, PoolEvents {
  std::size_t largest_free_block = 0;  // bytes, at the time of the call, without cached blocks

  friend bool operator==(const PoolStatistics&, const PoolStatistics&) = default;
};

// An Amount is a number of blocks or of segments, with their bytes.
struct Amount {
  std::size_t count = 0;
  std::size_t bytes = 0;
  std::size_t requested = 0;  // 0 for segments

  // Modulo 2^64: a negative difference may be added to a larger sum.
  Amount& operator+=(const Amount& other) {
    count += other.count;
    bytes += other.bytes;
    requested += other.requested;
    return *this;
  }
  Amount operator-() const { return {0 - count, 0 - bytes, 0 - requested}; }
};

// A Flow is the allocations and frees that a pool's tallies do not include. Either may be negative.
struct Flow {
  Amount began;
  Amount ended;

  Flow& operator+=(const Flow& other) {
    began += other.began;
    ended += other.ended;
    return *this;
  }
};

// Adds a flow to the statistics of the same moment. The peaks stay, or rise to the current values.
void add_to(PoolStatistics& statistics, const Flow& flow);

// Tallies are the counters that a pool stores: the freed amount is allocated - current.
class Tallies {
 public:
  void blocks_began(const Amount& amount) {
    tallies_.allocation.increase(amount.count);
    tallies_.allocated_bytes.increase(amount.bytes);
    tallies_.requested_bytes.increase(amount.requested);
  }
  void blocks_ended(const Amount& amount) {
    tallies_.allocation.decrease(amount.count);
    tallies_.allocated_bytes.decrease(amount.bytes);
    tallies_.requested_bytes.decrease(amount.requested);
  }
  void segments_began(const Amount& amount) {
    tallies_.segment.increase(amount.count);
    tallies_.reserved_bytes.increase(amount.bytes);
  }
  void segments_ended(const Amount& amount) {
    tallies_.segment.decrease(amount.count);
    tallies_.reserved_bytes.decrease(amount.bytes);
  }

  std::size_t reserved_bytes() const { return tallies_.reserved_bytes.current; }
  std::size_t peak_live_bytes() const { return tallies_.allocated_bytes.peak; }
  Amount live() const {
    return {tallies_.allocation.current, tallies_.allocated_bytes.current,
            tallies_.requested_bytes.current};
  }

  PoolStatistics statistics() const;

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

  struct {
#define CGTREE_DECLARE(name) Tally name;
    CGTREE_POOL_COUNTERS(CGTREE_DECLARE)
#undef CGTREE_DECLARE
  } tallies_;
};

}  // namespace cgtree
