// Looks at pools one after the other.
#include "allocator/reports/snapshot.h"

#include <fmt/format.h>

#include "allocator/pool/sizes.h"
#include "base/error.h"

namespace cgtree {
namespace {

void check(std::span<const PoolToSnapshot> pools) {
  for (std::size_t i = 0; i < pools.size(); ++i) {
    if (pools[i].pool == nullptr) throw InvalidArgument(fmt::format("pool {} is null", i));
    if (pools[i].label.device < 0) {
      throw InvalidArgument(
          fmt::format("pool {} is on device {}; devices count from 0", i, pools[i].label.device));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (pools[i].pool != pools[j].pool && pools[i].label != pools[j].label) continue;
      throw InvalidArgument(
          fmt::format("pools {} and {} are the same or have the same label (pool {} of device {})",
                      j, i, pools[i].label.id, pools[i].label.device));
    }
  }
}

SnapshotSegment segment_of(const PoolToSnapshot& view, const BlockList& blocks) {
  SnapshotSegment segment{.pool = view.label,
                          .address = blocks.front().range.address,
                          .total_size = blocks.back().range.end() - blocks.front().range.address,
                          .stream = view.pool->options().stream,
                          .is_expandable = view.is_expandable};
  segment.is_small = segment.total_size <= kSmallSegment;
  segment.blocks.reserve(blocks.size());
  for (const Block& block : blocks) {
    segment.blocks.push_back({block.range.address, block.range.bytes, block.requested});
    segment.requested_size += block.requested;
    if (block.is_live()) segment.active_size += block.range.bytes;
  }
  return segment;
}

}  // namespace

MemorySnapshot take_snapshot(std::span<const PoolToSnapshot> pools, const MemoryTrace* trace) {
  check(pools);
  MemorySnapshot snapshot;
  for (const PoolToSnapshot& view : pools) {
    for (const BlockList& blocks : view.pool->blocks())
      snapshot.segments.push_back(segment_of(view, blocks));
  }
  if (trace != nullptr) snapshot.trace = trace->events();
  return snapshot;
}

}  // namespace cgtree
