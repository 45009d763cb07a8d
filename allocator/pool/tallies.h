// The counters of a pool as it keeps them: no more than cannot be derived.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "allocator/pool/statistics.h"
#include "base/check.h"

namespace cgtree {

// An amount of blocks, or of segments.
struct Amount {
  std::size_t count = 0;
  std::size_t bytes = 0;
  std::size_t requested = 0;  // 0 for segments
};

// What is freed is allocated - current, and what all segments have the sum of both classes'; but
// the peak of a sum is no sum of peaks.
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
  std::size_t peak_reserved_bytes() const { return peaks_.reserved_bytes; }
  Amount live(bool is_small) const {
    const Class& tally = classes_[is_small];
    return {tally.allocation.current, tally.allocated_bytes.current, tally.requested_bytes.current};
  }

  PoolStatistics statistics() const;
  // Peaks begin anew at what is there.
  void reset_peaks();
  // Totals and events begin anew, as if what is there had just been allocated.
  void reset_totals();

  PoolEvents events;

 private:
  struct Tally {
    std::size_t current = 0;
    std::size_t peak = 0;
    std::size_t allocated = 0;

    void increase(std::size_t amount) {
      current += amount;
      allocated += amount;
      peak = std::max(peak, current);
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
    peak = std::max(peak, sum(tally));
  }

  std::array<Class, 2> classes_;  // large, small
  Peaks peaks_;                   // of both together
};

}  // namespace cgtree
