// One segment: memory from a source, tiled by blocks.
#pragma once

#include <memory>

#include "allocator/block.h"
#include "allocator/block_table.h"
#include "allocator/segment_source.h"

namespace cgtree {

// Owns the memory: the destructor gives it back. Its blocks are descriptors in the layout's table,
// linked from `first` on.
//
// Threads: none of its own, the pool's lock guards it.
class Segment {
 public:
  // Takes `bytes` from the source and throws what it throws.
  Segment(SegmentSource& source, std::size_t bytes, StreamId stream);
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;

  const Range& range() const { return *identity_; }

  // The address of this object tells a segment from a later one at the same place: whoever holds
  // the pointer keeps it from being used again.
  const std::shared_ptr<const Range>& identity() const { return identity_; }

  // Whether a checkpoint has it. Once false it stays so until the next checkpoint.
  bool is_pinned() const { return identity_.use_count() > 1; }

  // The lowest block. It keeps its descriptor when blocks coalesce.
  BlockIndex first = kNoBlock;

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
  std::shared_ptr<const BlockList> frozen_;
};

}  // namespace cgtree
