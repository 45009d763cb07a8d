// Lists and validates what a pool holds.
#include <algorithm>
#include <cstdint>

#include "allocator/pool/pool.h"
#include "base/check.h"

namespace cgtree {

std::vector<Range> Pool::live() const {
  const std::lock_guard lock(mutex_);
  std::vector<Range> ranges;
  ranges.reserve(layout_.live_blocks());
  for (const auto& [base, segment] : layout_.segments()) {
    for (const Block& block : layout_.blocks(segment)) {
      if (block.is_live()) ranges.push_back(block.range);
    }
  }
  return ranges;
}

std::vector<Range> Pool::segments() const {
  const std::lock_guard lock(mutex_);
  std::vector<Range> ranges;
  ranges.reserve(layout_.segments().size());
  for (const auto& [base, segment] : layout_.segments())
    ranges.push_back(segment.range());
  return ranges;
}

std::vector<BlockList> Pool::blocks() const {
  const std::lock_guard lock(mutex_);
  std::vector<BlockList> lists;
  lists.reserve(layout_.segments().size());
  for (const auto& [base, segment] : layout_.segments()) {
    const BlockTable::Walk walk = layout_.blocks(segment);
    lists.emplace_back(walk.begin(), walk.end());
  }
  return lists;
}

bool Pool::owns(const void* address) const {
  const std::lock_guard lock(mutex_);
  return layout_.find(reinterpret_cast<std::uintptr_t>(address)) != nullptr;
}

PoolUse Pool::use() const {
  const std::lock_guard lock(mutex_);
  return present_use();
}

PoolUse Pool::present_use() const {
  return {options_.name, tallies_.reserved_bytes(), tallies_.live_bytes(),
          layout_.largest_free_block()};
}

PoolStatistics Pool::statistics() const {
  const std::lock_guard lock(mutex_);
  return present_statistics();
}

PoolStatistics Pool::present_statistics() const {
  PoolStatistics statistics = tallies_.statistics();
  statistics.largest_free_block = layout_.largest_free_block();
  return statistics;
}

PoolGauges Pool::gauges() const {
  const std::lock_guard lock(mutex_);
  return present_gauges();
}

PoolGauges Pool::present_gauges() const {
  PoolGauges gauges;
  for (const auto& [base, segment] : layout_.segments()) {
    gauges.bytes_pinned += segment.pinned_bytes();
    if (layout_.is_wholly_free(segment)) continue;
    PoolGauges::Split& split = segment.is_small ? gauges.small_pool : gauges.large_pool;
    for (const Block& block : layout_.blocks(segment)) {
      if (block.is_live()) continue;
      ++split.blocks;
      split.bytes += block.range.bytes;
    }
  }
  return gauges;
}

std::string Pool::flat_statistics() const {
  PoolStatistics statistics;
  PoolGauges gauges;
  {
    const std::lock_guard lock(mutex_);
    statistics = present_statistics();
    gauges = present_gauges();
  }
  return to_flat_json(statistics, gauges);
}

void Pool::validate() const {
  const std::lock_guard lock(mutex_);
  layout_.validate();

  const PoolStatistics counted = tallies_.statistics();
  PoolCounters sums[2];  // over the layout
  for (const auto& [base, segment] : layout_.segments()) {
    PoolCounters& sum = sums[segment.is_small];
    sum.segment.current += 1;
    sum.reserved_bytes.current += segment.range().bytes;
    for (const Block& block : layout_.blocks(segment)) {
      if (!block.is_live()) continue;
      sum.allocation.current += 1;
      sum.allocated_bytes.current += block.range.bytes;
      sum.requested_bytes.current += block.requested;
    }
  }
#define CGTREE_VALIDATE(name)                                                                     \
  CGTREE_CHECK(counted.large_pool.name.current == sums[false].name.current);                      \
  CGTREE_CHECK(counted.small_pool.name.current == sums[true].name.current);                       \
  for (const Counter& counter :                                                                   \
       {counted.name, counted.large_pool.name, counted.small_pool.name}) {                        \
    CGTREE_CHECK(counter.current <= counter.peak);                                                \
    CGTREE_CHECK(counter.allocated - counter.freed == counter.current);                           \
    CGTREE_CHECK(counter.allocated >= counter.current);                                           \
  }                                                                                               \
  CGTREE_CHECK(counted.name.peak <= counted.large_pool.name.peak + counted.small_pool.name.peak); \
  CGTREE_CHECK(counted.name.current == sums[0].name.current + sums[1].name.current);
  CGTREE_POOL_COUNTERS(CGTREE_VALIDATE)
#undef CGTREE_VALIDATE
  CGTREE_CHECK(counted.reserved_bytes.current <= options_.max_bytes);
}

}  // namespace cgtree
