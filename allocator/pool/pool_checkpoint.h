// PoolCheckpoint: the layout of a pool as a value. PoolDelta: what restoring it changed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/pool/block.h"

namespace cgtree {

// A SegmentExtent is a segment at one of its sizes. A checkpoint that holds it pins this many bytes
// of the segment.
struct SegmentExtent {
  std::shared_ptr<const Range> segment;  // Segment::identity()
  Range range;
};

// A FrozenSegment is one segment of a checkpoint.
struct FrozenSegment {
  std::shared_ptr<const SegmentExtent> extent;
  std::shared_ptr<const BlockList> blocks;  // tile the extent

  const std::shared_ptr<const Range>& identity() const { return extent->segment; }
};

// A PoolCheckpoint is immutable and cheap to copy: copies share the layout, and the checkpoints of
// one pool share the segments that did not change between them. It may outlive its pool.
//
// Example: a pool of one segment has blocks A and B live, and a checkpoint c is taken. Then A is
// freed and a block C is allocated behind B. restore(c) computes the difference, segment by
// segment, and returns became_live = {A} and died = {C}: A is live again at its address, C is free,
// and B was not touched.
class PoolCheckpoint {
 public:
  // The layout of any pool without segments: restoring it frees everything.
  PoolCheckpoint() = default;
  // `layout`: see Layout::id().
  PoolCheckpoint(std::uint64_t layout, std::vector<FrozenSegment> segments);

  // Sorted by address.
  std::vector<Range> live() const;      // rounded sizes
  std::vector<Range> segments() const;  // at the time of the checkpoint

  // For the pool.
  const std::vector<FrozenSegment>& frozen() const;
  std::uint64_t layout() const { return layout_; }

  // Compares pools, identities of segments (not merely addresses), their sizes, and live blocks.
  friend bool operator==(const PoolCheckpoint& left, const PoolCheckpoint& right);

 private:
  std::uint64_t layout_ = 0;                                    // of the pool; 0 for any
  std::shared_ptr<const std::vector<FrozenSegment>> segments_;  // sorted by address; null: none
};

// A PoolDelta lists blocks with their rounded sizes, sorted by address. A range that is live before
// and after a restore is in neither list, even if it was freed and allocated again in between.
struct PoolDelta {
  std::vector<Range> became_live;
  std::vector<Range> died;

  friend bool operator==(const PoolDelta&, const PoolDelta&) = default;
};

// kAllMayDie replaces the list of blocks that a restore ends: any live block may end, because none
// is read any more.
class AllMayDie {
 public:
  explicit constexpr AllMayDie(int) {}  // so that `{}` is an empty list and not this
};
inline constexpr AllMayDie kAllMayDie{0};

}  // namespace cgtree
