// A change of layout, worked out but not yet made.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "allocator/pool/block_table.h"
#include "allocator/pool/pool_delta.h"
#include "allocator/pool/segment.h"
#include "allocator/pool/tallies.h"

namespace cgtree {

struct SegmentChange {
  Segment* segment;
  std::shared_ptr<const BlockList> list;  // its blocks after
};

struct Transition {
  std::vector<SegmentChange> changes;
  PoolDelta delta;
  // What `delta` amounts to, in large and in small segments; of the requested bytes also those of
  // blocks that keep their place but were asked for with another size.
  std::array<Amount, 2> amount_ended;
  std::array<Amount, 2> amount_began;

  // For an observer, and only when one asks: the blocks behind the requested bytes.
  bool notes_blocks = false;
  std::vector<Block> ended;
  std::vector<Block> began;

  // Adds the change of `segment` from `present` to `list`, which tiles it. Segments come in order
  // of address.
  void add(Segment& segment, const BlockTable::Walk& present,
           std::shared_ptr<const BlockList> list);
};

// The blocks of a segment in which exactly `live` is live: inside it, sorted, without overlap.
BlockList tile(const Range& segment, std::span<const Block> live);

}  // namespace cgtree
