// The segments and blocks of one pool, without its lock, its source and its counters.
#pragma once

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
#include "allocator/pool/tallies.h"
#include "allocator/pool/transition.h"

namespace cgtree {

// Invariants: the blocks of the segments are the descriptors of the table; the free index holds
// exactly the free ones, the live index exactly the live ones.
class Layout {
 public:
  using SegmentMap = std::map<std::uintptr_t, Segment>;  // by address

  // Without `splits`, a block is always a whole segment.
  explicit Layout(bool splits = true) : splits_(splits) {}
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  const SegmentMap& segments() const { return segments_; }
  BlockTable::Walk blocks(const Segment& segment) const { return table_.walk(segment.first); }
  std::size_t live_blocks() const { return live_.size(); }
  std::size_t largest_free_block() const { return free_.largest(); }
  bool is_wholly_free(const Segment& segment) const;

  // The segment that `address` lies in, null if none.
  const Segment* find(std::uintptr_t address) const;

  // Makes `bytes` live in the smallest free block that holds them; null if none does. Takes host
  // memory only when there are more blocks than ever; nothing has changed when that throws
  // std::bad_alloc.
  const BlockNode* allocate(std::size_t bytes, std::size_t requested);

  // The block that was freed; a block that is not live when `address` is not the start of one that
  // is, and then nothing has changed.
  struct Freed {
    Block block;
    bool is_small = false;  // Segment::is_small
  };
  Freed free(std::uintptr_t address) noexcept;

  // What lies there, for messages.
  std::string describe(std::uintptr_t address) const;

  // Adds the segments, wholly free, and leaves `segments` empty. An allocation in one of them takes
  // no host memory then. Nothing has changed when it throws std::bad_alloc.
  void add(SegmentMap& segments);

  // Takes all segments out, whatever is live.
  SegmentMap extract_all_segments() noexcept;

  // Takes the segments without a live block out of the layout, but none that overlaps one of
  // `kept`.
  SegmentMap extract_free_segments(std::span<const Range> kept = {}) noexcept;

  // Takes such segments out, the largest first, until they have `enough` bytes; none that a
  // checkpoint has.
  SegmentMap extract_unpinned_segments(std::size_t enough) noexcept;

  // How the newest segment comes to hold `bytes` at its end; nothing without a segment. Requires
  // that no free block holds them.
  struct Growth {
    std::uintptr_t segment;
    std::size_t missing;
  };
  std::optional<Growth> growth_for(std::size_t bytes) const noexcept;

  // Between the two, the lock may be released to ask the source: the segment stays and keeps its
  // size. One segment grows at a time. Throws std::bad_alloc, and nothing has changed then.
  Segment& begin_growth(const Growth& growth);
  // `bytes` is the segment's size now; what is new is free.
  void end_growth(Segment& segment, std::size_t bytes) noexcept;

  // Gives free ends of segments back, unless a checkpoint has them; returns how many. Leaves
  // segments without a live block and without a checkpoint to extract_unpinned_segments().
  Amount shrink_segments() noexcept;

  PoolCheckpoint checkpoint();

  // What it takes to get to the checkpoint's layout, or to the one in which exactly `live` is
  // live. Throws InvalidArgument when there is no way (Pool::restore, Pool::restore_live).
  Transition transition_to(const PoolCheckpoint& checkpoint, bool notes_blocks);
  Transition transition_to(std::span<const Range> live, bool notes_blocks);

  // Makes a transition that was worked out for the present layout.
  void apply(Transition& transition) noexcept;

  void validate() const;

 private:
  const BlockNode& occupy(BlockIndex index, std::size_t bytes, std::size_t requested) noexcept;
  BlockIndex last_block(const Segment& segment) const noexcept;
  void cut_tail(Segment& segment, BlockIndex last) noexcept;
  void absorb_next(BlockIndex index) noexcept;
  void extract(SegmentMap::iterator segment, SegmentMap& extracted) noexcept;
  void validate(const Segment& segment) const;

  std::vector<Block> sorted_blocks(std::span<const Range> live) const;
  void reserve_for(const Transition& transition);
  void clear(Segment& segment) noexcept;
  void fill(Segment& segment, std::span<const Block> list) noexcept;

  const bool splits_;
  SegmentMap segments_;
  std::uint64_t segments_seen_ = 0;
  BlockTable table_;
  FreeIndex free_{table_};
  LiveIndex live_;
  BlockIndex spare_ = kNoBlock;  // taken while a segment grows, so that end_growth() cannot fail
};

}  // namespace cgtree
