// Lists and validates what a pool holds.
#include <algorithm>
#include <cstdint>

#include "allocator/pool.h"
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
  return {options_.name, statistics_.reserved_bytes.current, statistics_.allocated_bytes.current,
          layout_.largest_free_block()};
}

PoolStatistics Pool::statistics() const {
  const std::lock_guard lock(mutex_);
  PoolStatistics statistics = statistics_;
  statistics.largest_free_block = layout_.largest_free_block();
  return statistics;
}

void Pool::validate() const {
  const std::lock_guard lock(mutex_);
  layout_.validate();

  // The counters are sums over the layout.
  PoolStatistics sums;
  for (const auto& [base, segment] : layout_.segments()) {
    sums.segment.current += 1;
    sums.reserved_bytes.current += segment.range().bytes;
    for (const Block& block : layout_.blocks(segment)) {
      if (!block.is_live()) continue;
      sums.allocation.current += 1;
      sums.allocated_bytes.current += block.range.bytes;
      sums.requested_bytes.current += block.requested;
    }
  }
#define CGTREE_VALIDATE(name)                                      \
  CGTREE_CHECK(statistics_.name.current == sums.name.current);     \
  CGTREE_CHECK(statistics_.name.current <= statistics_.name.peak); \
  CGTREE_CHECK(statistics_.name.allocated - statistics_.name.freed == statistics_.name.current);
  CGTREE_POOL_COUNTERS(CGTREE_VALIDATE)
#undef CGTREE_VALIDATE
  CGTREE_CHECK(sums.reserved_bytes.current <= options_.max_bytes);
}

}  // namespace cgtree
