// Works out the difference between two layouts of a segment.
#include "allocator/transition.h"

#include <utility>

namespace cgtree {
namespace {

// The next live block at or after `*position`, null at the end.
template <typename Iterator, typename BlockOf>
const Block* next_live(Iterator& position, Iterator end, BlockOf block_of) {
  while (position != end && !block_of(*position).is_live())
    ++position;
  return position == end ? nullptr : &block_of(*position);
}

}  // namespace

void Transition::add(Segment& segment, std::shared_ptr<const BlockList> list) {
  auto before = segment.blocks().begin();
  auto after = list->begin();
  for (;;) {
    const Block* const old_block =
        next_live(before, segment.blocks().end(),
                  [](const auto& entry) -> const Block& { return entry.second; });
    const Block* const new_block =
        next_live(after, list->end(), [](const Block& block) -> const Block& { return block; });
    if (old_block == nullptr && new_block == nullptr) break;

    const bool stays = old_block && new_block && old_block->range == new_block->range;
    const bool ends =
        stays || !new_block || (old_block && old_block->range.address <= new_block->range.address);
    const bool begins = stays || !ends;
    if (ends) {
      if (!stays) delta.died.push_back(old_block->range);
      requested_ended += old_block->requested;
      ++before;
    }
    if (begins) {
      if (!stays) delta.became_live.push_back(new_block->range);
      requested_began += new_block->requested;
      ++after;
    }
    if (stays && old_block->requested == new_block->requested) {
      requested_ended -= old_block->requested;
      requested_began -= new_block->requested;
    }
  }

  SegmentChange change{&segment, {}, std::move(list)};
  for (const Block& block : *change.list) {
    change.blocks.emplace_hint(change.blocks.end(), block.range.address, block);
    if (!block.is_live()) free.insert(block.range);
  }
  changes.push_back(std::move(change));
}

BlockList tile(const Range& segment, std::span<const Block> live) {
  BlockList blocks;
  std::uintptr_t position = segment.address;
  const auto fill_to = [&](std::uintptr_t end) {
    if (end > position) blocks.push_back({{position, end - position}, 0});
  };
  for (const Block& block : live) {
    fill_to(block.range.address);
    blocks.push_back(block);
    position = block.range.end();
  }
  fill_to(segment.end());
  return blocks;
}

}  // namespace cgtree
