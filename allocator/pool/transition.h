// Transition: a change of layout that is worked out but not yet made.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "allocator/pool/block_table.h"
#include "allocator/pool/pool_checkpoint.h"
#include "allocator/pool/segment.h"
#include "allocator/pool/statistics.h"

namespace cgtree {

struct SegmentChange {
  Segment* segment;
  std::shared_ptr<const BlockList> list;  // its blocks after
};

struct Transition {
  std::vector<SegmentChange> changes;
  PoolDelta delta;
  // The sums of `delta`, in large and in small segments. The requested bytes include those of
  // blocks that keep their place but were asked for with another size.
  std::array<Amount, 2> amount_ended;
  std::array<Amount, 2> amount_began;

  // The blocks behind the requested bytes, noted only if the pool has an observer.
  bool notes_blocks = false;
  std::vector<Block> ended;
  std::vector<Block> began;

  // Adds the change of `segment` from `present` to `list`, which tiles it. Requires: segments are
  // added in order of address.
  void add(Segment& segment, const BlockTable::Walk& present,
           std::shared_ptr<const BlockList> list);
};

// Returns the blocks of a segment in which exactly `live` is live. Requires: `live` lies inside the
// segment, sorted and without overlap.
BlockList tile(const Range& segment, std::span<const Block> live);

}  // namespace cgtree
