// Compares and lists the layouts that checkpoints hold.
#include "allocator/pool/pool_checkpoint.h"

#include <algorithm>
#include <utility>

namespace cgtree {

PoolCheckpoint::PoolCheckpoint(std::uint64_t layout, std::vector<FrozenSegment> segments)
    : layout_(layout),
      segments_(std::make_shared<const std::vector<FrozenSegment>>(std::move(segments))) {
}

const std::vector<FrozenSegment>& PoolCheckpoint::frozen() const {
  static const std::vector<FrozenSegment> none;
  return segments_ ? *segments_ : none;
}

std::vector<Range> PoolCheckpoint::live() const {
  std::vector<Range> ranges;
  for (const FrozenSegment& segment : frozen()) {
    for (const Block& block : *segment.blocks) {
      if (block.is_live()) ranges.push_back(block.range);
    }
  }
  return ranges;
}

std::vector<Range> PoolCheckpoint::segments() const {
  std::vector<Range> ranges;
  for (const FrozenSegment& segment : frozen())
    ranges.push_back(segment.extent->range);
  return ranges;
}

bool operator==(const PoolCheckpoint& left, const PoolCheckpoint& right) {
  if (left.layout_ != right.layout_) return false;
  if (left.segments_ == right.segments_) return true;
  const auto same_segment = [](const FrozenSegment& a, const FrozenSegment& b) {
    return a.identity() == b.identity() &&
           std::equal(a.blocks->begin(), a.blocks->end(), b.blocks->begin(), b.blocks->end(),
                      same_layout);
  };
  return std::equal(left.frozen().begin(), left.frozen().end(), right.frozen().begin(),
                    right.frozen().end(), same_segment);
}

}  // namespace cgtree
