// One segment: memory from a source, tiled by blocks.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "allocator/block.h"
#include "allocator/segment_source.h"

namespace cgtree {

// What freeing a block did: the free block that resulted, and the free neighbours it swallowed.
struct Coalesced {
  Block freed;
  Range merged;
  Range left;   // empty if there was none
  Range right;  // empty if there was none
};

// Owns the memory: the destructor gives it back.
//
// Threads: none of its own, the pool's lock guards it.
class Segment {
 public:
  using BlockMap = std::map<std::uintptr_t, Block>;  // by address

  // Takes `bytes` from the source and throws what it throws.
  Segment(SegmentSource& source, std::size_t bytes);
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;

  const Range& range() const { return *identity_; }

  // The address of this object tells a segment from a later one at the same place: whoever holds
  // the pointer keeps it from being used again.
  const std::shared_ptr<const Range>& identity() const { return identity_; }

  const BlockMap& blocks() const { return blocks_; }
  bool is_wholly_free() const { return blocks_.size() == 1 && !blocks_.begin()->second.is_live(); }

  // Makes the first `bytes` of the free block at `address` live, and returns what is left of it
  // (perhaps empty). Nothing has changed when it throws std::bad_alloc.
  Range allocate(std::uintptr_t address, std::size_t bytes, std::size_t requested);

  // `address` must be the start of a live block.
  Coalesced free(std::uintptr_t address) noexcept;

  // The blocks as an immutable list: the same object until the next change.
  std::shared_ptr<const BlockList> freeze() const;
  // The list that freeze() would return without making one; null after a change.
  const std::shared_ptr<const BlockList>& frozen() const { return frozen_; }

  // Makes `blocks`, whose list is `frozen`, the blocks of this segment; `blocks` gets the old ones.
  void exchange(BlockMap& blocks, std::shared_ptr<const BlockList> frozen) noexcept;

  void validate() const;

 private:
  SegmentSource* source_;
  std::shared_ptr<const Range> identity_;  // null once moved from
  BlockMap blocks_;
  mutable std::shared_ptr<const BlockList> frozen_;
};

}  // namespace cgtree
