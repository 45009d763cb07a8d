// Layout: the segments and blocks of one pool, without its lock, its source and its counters.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allocator/pool/block_table.h"
#include "allocator/pool/free_index.h"
#include "allocator/pool/live_index.h"
#include "allocator/pool/pool_checkpoint.h"
#include "allocator/pool/segment.h"
#include "allocator/pool/statistics.h"
#include "base/check.h"

namespace cgtree {

// A Layout records which ranges of which segments are live. It is deterministic: the same requests
// on the same layout get the same blocks.
//
// Invariants: the blocks of the segments are the descriptors of the table; the free index holds
// exactly the free ones, and the live index exactly the live ones.
//
// Example, in units of 512 bytes: a segment [0, 8) is one free block. Requests of 3 and 2 make
// [0, 3) and [3, 5) live and leave [5, 8) free. Freeing [0, 3) and then [3, 5) coalesces both with
// their free neighbours, so that [0, 8) is one free block again.
class Layout {
 public:
  using SegmentMap = std::map<std::uintptr_t, Segment>;  // by address

  // A Fit is the choice of the free block for a request.
  enum class Fit : std::uint8_t {
    kBest,  // the smallest
    // The end of a segment is used last: with one segment, the block for a request then depends on
    // the live blocks alone, and not on the size of the end. Of two ends, the smaller is used.
    kEndLast,
    // A request of at most kSmallRequest does not use blocks larger than a small segment.
    kSmallApart,
  };

  explicit Layout(Fit fit = Fit::kBest);
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  // Returns a number that is unique among all layouts of the process.
  std::uint64_t id() const noexcept { return id_; }

  const SegmentMap& segments() const { return segments_; }
  BlockTable::Walk blocks(const Segment& segment) const { return table_.walk(segment.first); }
  std::size_t live_blocks() const { return live_.size(); }
  std::size_t largest_free_block() const { return free_.largest(); }
  bool is_wholly_free(const Segment& segment) const;

  // Returns the segment that contains `address`, or null.
  const Segment* find(std::uintptr_t address) const;

  // Makes `bytes` live in the free block that fits; returns null if there is none. Allocates host
  // memory only if there are more blocks than ever before; nothing has changed if that throws
  // std::bad_alloc.
  const BlockNode* allocate(std::size_t bytes, std::size_t requested);
  // The same, in any free block that is large enough.
  const BlockNode* allocate_anywhere(std::size_t bytes, std::size_t requested);

  // Frees the block at `address` and returns it. If `address` is not the start of a live block,
  // nothing has changed and the returned block is not live.
  Block free(std::uintptr_t address) noexcept;

  // Returns true if a live block starts at the address.
  bool is_live(std::uintptr_t address) const noexcept { return live_.find(address) != kNoBlock; }

  // Describes the block or segment at the address, for messages.
  std::string describe(std::uintptr_t address) const;

  // Adds the segments, wholly free, and leaves `segments` empty. The next allocation does not
  // allocate host memory. Nothing has changed if it throws std::bad_alloc.
  void add(SegmentMap& segments);

  // Removes and returns all segments, with live blocks or not.
  SegmentMap extract_all_segments() noexcept;

  // Removes and returns the segments without a live block, except those that overlap one of `kept`.
  SegmentMap extract_free_segments(std::span<const Range> kept = {}) noexcept;

  // Removes and returns the segments without a live block that no checkpoint has.
  SegmentMap extract_unpinned_segments() noexcept;

  // Returns the growth of the newest segment that makes it hold `bytes` at its end, or nothing if
  // there is no segment or none can be as large. Requires: no free block holds them.
  struct Growth {
    std::uintptr_t segment;
    std::size_t missing;
  };
  std::optional<Growth> growth_for(std::size_t bytes) const noexcept;

  // Between begin_growth() or begin_shrink() and end_resize() the lock may be released to call the
  // source: the segment stays and keeps its size. Throws std::bad_alloc, and nothing has changed
  // then. Requires: the segment is not being resized.
  Segment& begin_growth(const Growth& growth);

  // Removes the free end of the first segment at or after `from` that has one, unless a checkpoint
  // contains it. Segments without a live block and without a checkpoint are left to
  // extract_unpinned_segments(). The segment is null if there is none.
  struct Shrink {
    Segment* segment = nullptr;
    std::size_t before = 0;  // its former bytes; it now has the least that must stay
  };
  Shrink begin_shrink(std::uintptr_t from) noexcept;

  // Takes a run of free, mapped pages of at most about `most` bytes, the last run of the first
  // segment that has one: they count as unmapped from then on. The segment is null if there is
  // none. After unmapping the run, call end_unmap().
  struct Unmap {
    Segment* segment = nullptr;
    Range run;  // offsets
  };
  Unmap begin_unmap(std::size_t most) noexcept;
  void end_unmap(const Unmap& unmap, bool succeeded) noexcept;

  // `bytes` is the new size of the segment; the added part is free.
  void end_resize(Segment& segment, std::size_t bytes) noexcept;
  bool is_resizing() const noexcept;

  PoolCheckpoint checkpoint();

  // Computes the change to the checkpoint's layout, or to the layout in which exactly `live` is
  // live. Throws InvalidArgument if there is no such change (see Pool::restore() and
  // Pool::restore_live()).
  Transition transition_to(const PoolCheckpoint& checkpoint);
  Transition transition_to(std::span<const Range> live);

  // Applies a transition. Requires: it was computed for the present layout.
  void apply(Transition& transition) noexcept;

  void validate() const;

 private:
  const BlockNode& occupy(BlockIndex index, std::size_t bytes, std::size_t requested) noexcept;
  // Does not read the segment before the first checkpoint or restore.
  void thaw(Segment& segment) noexcept {
    if (has_frozen_) segment.thaw();
  }
  BlockIndex last_block(const Segment& segment) const noexcept;
  BlockIndex fit(BlockIndex best, std::size_t bytes) noexcept;
  void cut_tail(Segment& segment, BlockIndex last) noexcept;
  void absorb_next(BlockIndex index) noexcept;
  void extract(SegmentMap::iterator segment, SegmentMap& extracted) noexcept;
  template <typename IsKept>
  SegmentMap extract_free_segments_unless(IsKept is_kept) noexcept;
  void validate(const Segment& segment) const;

  std::vector<Block> sorted_blocks(std::span<const Range> live) const;
  void reserve_for(const Transition& transition);
  void clear(Segment& segment) noexcept;
  void fill(Segment& segment, std::span<const Block> list) noexcept;

  const std::uint64_t id_;
  const Fit fit_;
  bool has_frozen_ = false;  // a segment may have a frozen list
  // Members that every call writes come first, so that they fill few cache lines.
  BlockTable table_;
  LiveIndex live_{table_};
  FreeIndex free_{table_};
  SegmentMap segments_;
  std::uint64_t segments_seen_ = 0;
};

// The functions below are inlined into the calls of a pool, which would otherwise take a quarter
// more instructions.

// Makes the first `bytes` of a free block live. Requires: there is room in the table and in the
// live index.
[[gnu::always_inline]] inline const BlockNode& Layout::occupy(BlockIndex index, std::size_t bytes,
                                                              std::size_t requested) noexcept {
  CGTREE_CHECK(requested > 0 && requested <= bytes);
  free_.erase(index);
  BlockNode& node = table_[index];
  CGTREE_CHECK(!node.block.is_live() && bytes <= node.block.range.bytes);
  const Range whole = node.block.range;
  if (bytes < whole.bytes) {
    const BlockIndex rest_index = table_.take();
    BlockNode& rest = table_[rest_index];
    rest.block = {{whole.address + bytes, whole.bytes - bytes}, 0};
    rest.previous = index;
    rest.next = node.next;
    rest.segment = node.segment;
    table_[rest.next].previous = rest_index;
    node.next = rest_index;
    free_.insert(rest_index);
  }
  node.block.range.bytes = bytes;
  node.block.requested = requested;
  live_.insert(index);
  thaw(*node.segment);
  return node;
}

// Makes the block after `index` a part of the block at `index`.
[[gnu::always_inline]] inline void Layout::absorb_next(BlockIndex index) noexcept {
  BlockNode& node = table_[index];
  const BlockIndex absorbed = node.next;
  node.block.range.bytes += table_[absorbed].block.range.bytes;
  node.next = table_[absorbed].next;
  table_[node.next].previous = index;
  table_.give_back(absorbed);
}

[[gnu::always_inline]] inline const BlockNode* Layout::allocate(std::size_t bytes,
                                                                std::size_t requested) {
  BlockIndex index = free_.best_fit(bytes);
  if (index == kNoBlock) return nullptr;
  if (fit_ != Fit::kBest) {
    index = fit(index, bytes);
    if (index == kNoBlock) return nullptr;
  }
  table_.reserve(1);
  live_.reserve(1);
  return &occupy(index, bytes, requested);
}

[[gnu::always_inline]] inline Block Layout::free(std::uintptr_t address) noexcept {
  BlockIndex index = live_.erase(address);
  if (index == kNoBlock) [[unlikely]] {
    return {};
  }
  BlockNode& node = table_[index];
  table_.prefetch(node.previous);  // both are read after a branch that is hard to predict
  table_.prefetch(node.next);
  const Block freed = node.block;
  node.block.requested = 0;
  thaw(*node.segment);

  if (!table_[node.next].block.is_live()) {
    free_.erase(node.next);
    absorb_next(index);
  }
  if (!table_[node.previous].block.is_live()) {
    index = node.previous;
    free_.erase(index);
    absorb_next(index);
  }
  free_.insert(index);
  return freed;
}

}  // namespace cgtree
