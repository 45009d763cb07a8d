// Counts.
#include "allocator/pool/statistics.h"

namespace cgtree {
void add_to(PoolStatistics& statistics, const Flow& flow) {
  const auto add = [](PoolCounters& counters, const Amount& began, const Amount& ended) {
    const auto change = [](Counter& counter, std::size_t allocated, std::size_t freed) {
      counter.allocated += allocated;
      counter.freed += freed;
      counter.current = counter.allocated - counter.freed;
      counter.peak = std::max(counter.peak, counter.current);
    };
    change(counters.allocation, began.count, ended.count);
    change(counters.allocated_bytes, began.bytes, ended.bytes);
    change(counters.requested_bytes, began.requested, ended.requested);
  };
  for (const bool is_small : {false, true}) {
    add(is_small ? statistics.small_pool : statistics.large_pool, flow.began[is_small],
        flow.ended[is_small]);
    add(statistics, flow.began[is_small], flow.ended[is_small]);
  }
}

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

}  // namespace cgtree
