// The layout of a pool as a value.
#pragma once

#include <memory>
#include <vector>

#include "allocator/pool/block.h"

namespace cgtree {

// A segment at one of its sizes. A checkpoint that holds it pins so many bytes of the segment.
struct SegmentExtent {
  std::shared_ptr<const Range> segment;  // Segment::identity()
  Range range;
};

// One segment of a checkpoint.
struct FrozenSegment {
  std::shared_ptr<const SegmentExtent> extent;
  std::shared_ptr<const BlockList> blocks;  // tile the extent

  const std::shared_ptr<const Range>& identity() const { return extent->segment; }
};

// Immutable and cheap to copy: copies share the layout, and so do the checkpoints of one pool for
// the segments that did not change between them. It may outlive its pool.
class PoolCheckpoint {
 public:
  // The layout of a pool without segments: restoring it frees everything.
  PoolCheckpoint() = default;
  explicit PoolCheckpoint(std::vector<FrozenSegment> segments);

  // Sorted by address.
  std::vector<Range> live() const;      // rounded sizes
  std::vector<Range> segments() const;  // as they were when it was taken

  // For the pool.
  const std::vector<FrozenSegment>& frozen() const;

  // The same segments (not merely segments at the same addresses), of the same sizes, with the same
  // blocks live.
  friend bool operator==(const PoolCheckpoint& left, const PoolCheckpoint& right);

 private:
  std::shared_ptr<const std::vector<FrozenSegment>> segments_;  // sorted by address; null: none
};

}  // namespace cgtree
