// One segment: memory from a source, tiled by blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "allocator/pool/block.h"
#include "allocator/pool/block_table.h"
#include "allocator/pool/pool_checkpoint.h"
#include "allocator/segments/segment_source.h"

namespace cgtree {

// Owns the memory: the destructor gives it back. Its blocks are descriptors in the layout's table,
// linked from `first` on.
//
// Threads: none of its own, the pool's lock guards it. Only grow() is called without it, and while
// `is_growing` nobody else changes the range.
class Segment {
 public:
  // Takes `bytes` from the source and throws what it throws.
  Segment(SegmentSource& source, std::size_t bytes, StreamId stream);
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;

  const Range& range() const { return range_; }

  // The address of this object tells a segment from a later one at the same place: whoever holds
  // the pointer keeps it from being used again. It stays when the segment grows.
  const std::shared_ptr<const Range>& identity() const { return identity_; }

  // The segment at its present size, for a checkpoint. Throws std::bad_alloc.
  std::shared_ptr<const SegmentExtent> extent();

  // The most bytes that a checkpoint has of it. Does not become more until the next checkpoint.
  std::size_t pinned_bytes() const noexcept;
  bool is_pinned() const noexcept { return pinned_bytes() > 0; }

  // Asks the source; the range stays until set_bytes().
  bool grow(std::size_t grown);
  // Gives the end back, so that at least `least` (> 0) bytes stay.
  void shrink(std::size_t least) noexcept;
  void set_bytes(std::size_t bytes) noexcept { range_.bytes = bytes; }

  // The lowest block. It keeps its descriptor when blocks coalesce.
  BlockIndex first = kNoBlock;
  bool is_small = false;     // counted among the small ones (statistics.h)
  bool is_growing = false;   // the source is being asked for more
  std::uint64_t number = 0;  // in the order in which the layout got them

  // The blocks as an immutable list, null when they have changed since it was made.
  const std::shared_ptr<const BlockList>& frozen() const { return frozen_; }
  void set_frozen(std::shared_ptr<const BlockList> list) noexcept { frozen_ = std::move(list); }
  void thaw() noexcept {
    if (frozen_) frozen_.reset();
  }

 private:
  SegmentSource* source_;
  StreamId stream_;
  std::shared_ptr<const Range> identity_;  // null once moved from
  Range range_;
  std::shared_ptr<const BlockList> frozen_;
  std::vector<std::shared_ptr<const SegmentExtent>> extents_;  // that checkpoints may still have
};

}  // namespace cgtree
