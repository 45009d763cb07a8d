// Works out transitions of a layout aside, and makes them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "allocator/layout.h"
#include "allocator/sizes.h"
#include "base/error.h"

namespace cgtree {
namespace {

std::string to_string(const Range& range) {
  return fmt::format("[{:#x}, {:#x})", range.address, range.end());
}

bool is_layout_of(const BlockList& list, const Segment& segment) {
  return std::equal(list.begin(), list.end(), segment.blocks().begin(), segment.blocks().end(),
                    [](const Block& block, const auto& entry) {
                      return block.range == entry.second.range &&
                             block.is_live() == entry.second.is_live();
                    });
}

}  // namespace

Transition Layout::transition_to(const PoolCheckpoint& checkpoint) {
  std::map<const Range*, const FrozenSegment*> targets;  // by identity
  for (const FrozenSegment& segment : checkpoint.frozen()) {
    targets.emplace(segment.identity.get(), &segment);
  }
  Transition transition;
  for (auto& [address, segment] : segments_) {
    const auto target = targets.find(segment.identity().get());
    if (target == targets.end()) {  // newer than the checkpoint
      if (segment.is_wholly_free()) continue;
      transition.add(segment, std::make_shared<BlockList>(tile(segment.range(), {})));
      continue;
    }
    const std::shared_ptr<const BlockList>& blocks = target->second->blocks;
    if (segment.frozen() != blocks) transition.add(segment, blocks);
    targets.erase(target);
  }
  if (!targets.empty()) {
    const auto missing = [&](const FrozenSegment& segment) {
      return targets.contains(segment.identity.get());
    };
    const FrozenSegment& first =
        *std::find_if(checkpoint.frozen().begin(), checkpoint.frozen().end(), missing);
    throw InvalidArgument(fmt::format(
        "the checkpoint has {} segment(s) that this pool does not have, the first at {}; restore "
        "a checkpoint in the pool it was taken of, and trim() only when none is needed any more",
        targets.size(), to_string(*first.identity)));
  }
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
    const auto present = segment->blocks().find(range.address);
    if (present != segment->blocks().end() && present->second.is_live() &&
        present->second.range == block.range) {
      block.requested = present->second.requested;
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

Transition Layout::transition_to(std::span<const Range> live) {
  const std::vector<Block> blocks = sorted_blocks(live);
  Transition transition;
  auto first = blocks.begin();
  for (auto& [address, segment] : segments_) {
    const std::uintptr_t end = segment.range().end();
    const auto last = std::find_if(first, blocks.end(),
                                   [&](const Block& block) { return block.range.address >= end; });
    BlockList list = tile(segment.range(), std::span<const Block>(first, last));
    first = last;
    if (is_layout_of(list, segment)) continue;
    transition.add(segment, std::make_shared<BlockList>(std::move(list)));
  }
  return transition;
}

void Layout::apply(Transition& transition) noexcept {
  for (SegmentChange& change : transition.changes) {
    for (const auto& [address, block] : change.segment->blocks()) {
      if (!block.is_live()) free_.erase(block.range);
    }
    change.segment->exchange(change.blocks, std::move(change.list));
  }
  free_.absorb(transition.free);
}

}  // namespace cgtree
