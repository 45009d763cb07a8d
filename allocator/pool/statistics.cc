// Counts.
#include "allocator/pool/statistics.h"

#include <algorithm>

namespace cgtree {

void add_to(PoolStatistics& statistics, const Flow& flow) {
  const auto change = [](Counter& counter, std::size_t allocated, std::size_t freed) {
    counter.allocated += allocated;
    counter.freed += freed;
    counter.current = counter.allocated - counter.freed;
    counter.peak = std::max(counter.peak, counter.current);
  };
  change(statistics.allocation, flow.began.count, flow.ended.count);
  change(statistics.allocated_bytes, flow.began.bytes, flow.ended.bytes);
  change(statistics.requested_bytes, flow.began.requested, flow.ended.requested);
}

PoolStatistics Tallies::statistics() const {
  PoolStatistics result;
  static_cast<PoolEvents&>(result) = events;
  const auto counter = [](const Tally& tally) {
    return Counter{tally.current, tally.peak, tally.allocated, tally.allocated - tally.current};
  };
#define CGTREE_WRITE(name) result.name = counter(tallies_.name);
  CGTREE_POOL_COUNTERS(CGTREE_WRITE)
#undef CGTREE_WRITE
  return result;
}

}  // namespace cgtree
