// Segment: memory from a source, tiled by blocks. Transition: a change of the blocks of segments
// that is computed but not yet applied.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "allocator/pool/block.h"
#include "allocator/pool/block_table.h"
#include "allocator/pool/page_map.h"
#include "allocator/pool/pool_checkpoint.h"
#include "allocator/pool/segment_source.h"
#include "allocator/pool/statistics.h"

namespace cgtree {

// A Segment owns its memory: the destructor gives it back. Its blocks are descriptors in the
// layout's table, linked from `first` on.
//
// Thread safety: the pool's lock guards it. Only grow() and shrink() are called without the lock;
// while `is_resizing` is set no other thread changes the range.
class Segment {
 public:
  // Allocates `bytes` from the source, which may make room for them if `makes_room`; throws as the
  // source does.
  Segment(SegmentSource& source, std::size_t bytes, StreamId stream, bool makes_room = true);
  ~Segment();
  Segment(Segment&&) noexcept = default;
  Segment& operator=(Segment&&) = delete;

  const Range& range() const { return range_; }

  // Returns an object whose address distinguishes the segment from a later one at the same place:
  // the address is not reused while the pointer is held. It stays the same when the segment grows.
  const std::shared_ptr<const Range>& identity() const { return identity_; }

  // Returns the segment at its present size, for a checkpoint. Throws std::bad_alloc.
  std::shared_ptr<const SegmentExtent> extent();

  // Returns the largest number of bytes of the segment in a checkpoint. The value does not grow
  // until the next checkpoint.
  std::size_t pinned_bytes() const noexcept;
  bool is_pinned() const noexcept { return pinned_bytes() > 0; }

  // Grows the memory at the source; the range stays the same until set_bytes().
  bool grow(std::size_t grown);
  // Gives the end of memory of `bytes` back, so that at least `least` (> 0) bytes stay; returns how
  // many stay. The pool updates the range.
  std::size_t shrink(std::size_t bytes, std::size_t least) noexcept;
  void set_bytes(std::size_t bytes) noexcept { range_.bytes = bytes; }
  // Maps and unmaps memory of whole pages; the pool updates `pages`.
  void map(const Range& run);
  bool unmap(const Range& run) noexcept;
  std::size_t reserved_bytes() const noexcept { return range_.bytes - pages.unmapped_bytes(); }

  // The lowest block. It keeps its descriptor when blocks coalesce.
  BlockIndex first = kNoBlock;
  bool is_small = false;        // at most 2 MiB at first, in a pool that does not grow in place
  bool is_resizing = false;     // grow() or shrink() is in progress
  BlockIndex spare = kNoBlock;  // reserved while it is resized, so that end_resize() cannot fail
  std::uint64_t number = 0;     // in the order in which the layout got them
  PageMap pages;                // of a pool with Growth::kInPages

  // Returns the blocks as an immutable list, or null if they have changed since it was made.
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
  std::vector<std::shared_ptr<const SegmentExtent>> extents_;  // checkpoints may still hold them
};

// A SegmentChange gives the new blocks of a segment.
struct SegmentChange {
  Segment* segment;
  std::shared_ptr<const BlockList> list;
};

// A Transition is the change from one layout of a pool to another.
struct Transition {
  std::vector<SegmentChange> changes;
  PoolDelta delta;
  // The sums of `delta`. The requested bytes include those of blocks that stay but were requested
  // with another size.
  Amount amount_ended;
  Amount amount_began;

  // Adds the change of `segment` from `present` to `list`, which tiles it. Requires: segments are
  // added in order of address.
  void add(Segment& segment, const BlockTable::Walk& present,
           std::shared_ptr<const BlockList> list);
};

// Returns the blocks of a segment in which exactly `live` is live. Requires: `live` lies inside the
// segment, sorted and without overlap.
BlockList tile(const Range& segment, std::span<const Block> live);

}  // namespace cgtree
