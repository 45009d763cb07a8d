// The layout of a pool as a value.
#pragma once

#include <memory>
#include <vector>

#include "allocator/block.h"

namespace cgtree {

// One segment of a checkpoint.
struct FrozenSegment {
  std::shared_ptr<const Range> identity;  // of the segment, see Segment::identity()
  std::shared_ptr<const BlockList> blocks;
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
  std::vector<Range> segments() const;  // those that existed when it was taken

  // For the pool.
  const std::vector<FrozenSegment>& frozen() const;

  // The same segments (not merely segments at the same addresses) with the same blocks live.
  friend bool operator==(const PoolCheckpoint& left, const PoolCheckpoint& right);

 private:
  std::shared_ptr<const std::vector<FrozenSegment>> segments_;  // sorted by address; null: none
};

}  // namespace cgtree
