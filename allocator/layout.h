// The segments and blocks of one pool, without its lock, its source and its counters.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "allocator/free_index.h"
#include "allocator/pool_checkpoint.h"
#include "allocator/segment.h"
#include "allocator/transition.h"

namespace cgtree {

// Invariant: the free index holds exactly the free blocks of the segments.
class Layout {
 public:
  using SegmentMap = std::map<std::uintptr_t, Segment>;  // by address

  const SegmentMap& segments() const { return segments_; }
  const FreeIndex& free_index() const { return free_; }

  // The segment that `address` lies in, null if none.
  const Segment* find(std::uintptr_t address) const;

  // Makes `bytes` live in the smallest free block that holds them; nothing if none does.
  std::optional<Range> allocate(std::size_t bytes, std::size_t requested);

  // The block that was freed. Aborts unless `address` is the start of a live block.
  Block free(std::uintptr_t address) noexcept;

  // Nothing has changed when it throws std::bad_alloc; the segment is given back then.
  void add(Segment segment);

  // Takes the segments without a live block out of the layout.
  SegmentMap extract_free_segments() noexcept;

  PoolCheckpoint checkpoint() const;

  // What it takes to get to the checkpoint's layout, or to the one in which exactly `live` is
  // live. Throws InvalidArgument when there is no way (Pool::restore, Pool::restore_live).
  Transition transition_to(const PoolCheckpoint& checkpoint);
  Transition transition_to(std::span<const Range> live);

  // Makes a transition that was worked out for the present layout.
  void apply(Transition& transition) noexcept;

  void validate() const;

 private:
  Segment* find_mutable(std::uintptr_t address);
  std::vector<Block> sorted_blocks(std::span<const Range> live) const;

  SegmentMap segments_;
  FreeIndex free_;
};

}  // namespace cgtree
