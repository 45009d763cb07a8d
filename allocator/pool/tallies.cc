// Resets the counters of a pool and writes them out in full.
#include "allocator/pool/tallies.h"

namespace cgtree {

PoolStatistics Tallies::statistics() const {
  PoolStatistics result;
  static_cast<PoolEvents&>(result) = events;
  const auto counter = [](const Tally& tally) {
    return Counter{tally.current, tally.peak, tally.allocated, tally.allocated - tally.current};
  };
#define CGTREE_WRITE(name)                                                \
  result.large_pool.name = counter(classes_[false].name);                 \
  result.small_pool.name = counter(classes_[true].name);                  \
  result.name = {sum(&Class::name), peaks_.name,                          \
                 classes_[0].name.allocated + classes_[1].name.allocated, \
                 result.large_pool.name.freed + result.small_pool.name.freed};
  CGTREE_POOL_COUNTERS(CGTREE_WRITE)
#undef CGTREE_WRITE
  return result;
}

void Tallies::reset_peaks() {
#define CGTREE_RESET(name)                \
  for (Class & tally : classes_)          \
    tally.name.peak = tally.name.current; \
  peaks_.name = sum(&Class::name);
  CGTREE_POOL_COUNTERS(CGTREE_RESET)
#undef CGTREE_RESET
}

void Tallies::reset_totals() {
#define CGTREE_RESET(name)       \
  for (Class & tally : classes_) \
    tally.name.allocated = tally.name.current;
  CGTREE_POOL_COUNTERS(CGTREE_RESET)
#undef CGTREE_RESET
  events = {};
}

}  // namespace cgtree
