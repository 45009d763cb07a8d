// Works out transitions of a layout aside, and makes them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "allocator/pool/layout.h"
#include "allocator/pool/sizes.h"
#include "base/check.h"
#include "base/error.h"

namespace cgtree {
namespace {

std::string to_string(const Range& range) {
  return fmt::format("[{:#x}, {:#x})", range.address, range.end());
}

bool is_layout_of(const BlockList& list, const BlockTable::Walk& blocks) {
  return std::equal(list.begin(), list.end(), blocks.begin(), blocks.end(),
                    [](const Block& left, const Block& right) {
                      return left.range == right.range && left.is_live() == right.is_live();
                    });
}

// Throws unless every segment of the checkpoint is here.
void expect_all_segments(const PoolCheckpoint& checkpoint, const Layout::SegmentMap& segments) {
  const Range* first = nullptr;
  std::size_t missing = 0;
  for (const FrozenSegment& target : checkpoint.frozen()) {
    const auto found = segments.find(target.extent->range.address);
    if (found != segments.end() && found->second.identity() == target.identity()) continue;
    if (missing++ == 0) first = &target.extent->range;
  }
  if (missing == 0) return;
  throw InvalidArgument(fmt::format(
      "the checkpoint has {} segment(s) that this pool does not have, the first at {}; restore "
      "a checkpoint in the pool it was taken of, and trim() only when none is needed any more",
      missing, to_string(*first)));
}

// The blocks of the checkpoint, where a segment has grown since with the new part free.
std::shared_ptr<const BlockList> at_present_size(const FrozenSegment& target,
                                                 const Segment& segment) {
  CGTREE_CHECK(target.extent->range.bytes <= segment.range().bytes);  // it is pinned
  const std::uintptr_t end = target.extent->range.end();
  const std::size_t added = segment.range().end() - end;
  if (added == 0) return target.blocks;
  auto list = std::make_shared<BlockList>();
  list->reserve(target.blocks->size() + 1);
  *list = *target.blocks;
  if (list->back().is_live()) {
    list->push_back({{end, added}, 0});
  } else {
    list->back().range.bytes += added;
  }
  return list;
}

}  // namespace

Transition Layout::transition_to(const PoolCheckpoint& checkpoint, bool notes_blocks) {
  expect_all_segments(checkpoint, segments_);
  Transition transition{.notes_blocks = notes_blocks};
  auto target = checkpoint.frozen().begin();  // in order of address, as the segments are
  for (auto& [address, segment] : segments_) {
    const bool is_newer =
        target == checkpoint.frozen().end() || target->identity() != segment.identity();
    if (is_newer) {
      if (is_wholly_free(segment)) continue;
      transition.add(segment, blocks(segment),
                     std::make_shared<BlockList>(tile(segment.range(), {})));
      continue;
    }
    if (segment.frozen() != target->blocks) {
      transition.add(segment, blocks(segment), at_present_size(*target, segment));
    }
    ++target;
  }
  reserve_for(transition);
  return transition;
}

// Checks the ranges, and rounds them to blocks.
std::vector<Block> Layout::sorted_blocks(std::span<const Range> live) const {
  std::vector<Block> blocks;
  blocks.reserve(live.size());
  for (const Range& range : live) {
    if (range.bytes == 0 || range.address % kBlockAlignment != 0) {
      throw InvalidArgument(
          fmt::format("live range {} is empty or does not start at a multiple "
                      "of {}; give the ranges that allocate() returned",
                      to_string(range), kBlockAlignment));
    }
    const Segment* const segment = find(range.address);
    // Compared as sizes: end() may wrap around.
    if (segment == nullptr || range.bytes > segment->range().end() - range.address) {
      throw InvalidArgument(fmt::format(
          "live range at {:#x} of {} bytes {}", range.address, range.bytes,
          segment ? "crosses the end of its segment " + to_string(segment->range())
                  : "lies in no segment of this pool; restore only what was allocated in it"));
    }
    Block block{{range.address, block_bytes(range.bytes)}, range.bytes};
    if (!splits_) block.range = segment->range();
    const BlockIndex present = live_.find(table_, range.address);
    if (present != kNoBlock && table_[present].block.range == block.range) {
      block.requested = table_[present].block.requested;
    }
    blocks.push_back(block);
  }
  std::sort(blocks.begin(), blocks.end(), [](const Block& left, const Block& right) {
    return left.range.address < right.range.address;
  });
  const auto clash = std::adjacent_find(
      blocks.begin(), blocks.end(),
      [](const Block& left, const Block& right) { return left.range.overlaps(right.range); });
  if (clash != blocks.end()) {
    throw InvalidArgument(fmt::format("live ranges {} and {} overlap", to_string(clash->range),
                                      to_string(std::next(clash)->range)));
  }
  return blocks;
}

Transition Layout::transition_to(std::span<const Range> live, bool notes_blocks) {
  const std::vector<Block> wanted = sorted_blocks(live);
  Transition transition{.notes_blocks = notes_blocks};
  auto first = wanted.begin();
  for (auto& [address, segment] : segments_) {
    const std::uintptr_t end = segment.range().end();
    const auto last = std::find_if(first, wanted.end(),
                                   [&](const Block& block) { return block.range.address >= end; });
    BlockList list = tile(segment.range(), std::span<const Block>(first, last));
    first = last;
    if (is_layout_of(list, blocks(segment))) continue;
    transition.add(segment, blocks(segment), std::make_shared<BlockList>(std::move(list)));
  }
  reserve_for(transition);
  return transition;
}

// Room for the blocks of all changes, so that apply() needs no memory.
void Layout::reserve_for(const Transition& transition) {
  std::size_t count = 0;
  for (const SegmentChange& change : transition.changes)
    count += change.list->size();
  table_.reserve(count);
  live_.reserve(transition.delta.became_live.size());
}

void Layout::apply(Transition& transition) noexcept {
  // All go before any comes: the live index has room for the difference only.
  for (const SegmentChange& change : transition.changes)
    clear(*change.segment);
  for (SegmentChange& change : transition.changes) {
    fill(*change.segment, *change.list);
    change.segment->set_frozen(std::move(change.list));
  }
}

// Takes the segment's blocks out of the indexes and the table.
void Layout::clear(Segment& segment) noexcept {
  BlockIndex index = segment.first;
  segment.first = kNoBlock;
  while (index != kNoBlock) {
    const BlockNode& node = table_[index];
    if (node.block.is_live()) {
      live_.erase(table_, node.block.range.address);
    } else {
      free_.erase(index);
    }
    table_.give_back(std::exchange(index, node.next));
  }
}

// Gives a segment without blocks those of `list`. Requires room in the table and the live index.
void Layout::fill(Segment& segment, std::span<const Block> list) noexcept {
  BlockIndex previous = kNoBlock;
  for (const Block& block : list) {
    const BlockIndex index = table_.take();
    BlockNode& node = table_[index];
    node.block = block;
    node.previous = previous;
    node.next = kNoBlock;
    node.segment = &segment;
    (previous == kNoBlock ? segment.first : table_[previous].next) = index;
    if (block.is_live()) {
      live_.insert(block.range.address, index);
    } else {
      free_.insert(index);
    }
    previous = index;
  }
}

}  // namespace cgtree
