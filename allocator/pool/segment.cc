// Allocates, resizes and frees the memory of one segment, and computes the difference between two
// of its layouts.
#include "allocator/pool/segment.h"

#include <algorithm>
#include <utility>

#include "allocator/pool/block.h"
#include "base/check.h"

namespace cgtree {
namespace {

// Makes the descriptor first, because nothing may throw once the memory is allocated.
std::shared_ptr<const Range> take(SegmentSource& source, std::size_t bytes, StreamId stream,
                                  bool makes_room) {
  auto identity = std::make_shared<Range>();
  void* const memory =
      makes_room ? source.allocate(bytes, stream) : source.allocate_from_free(bytes, stream);
  CGTREE_CHECK(memory != nullptr);
  *identity = {reinterpret_cast<std::uintptr_t>(memory), bytes};
  CGTREE_CHECK(identity->address % kBlockAlignment == 0);
  return identity;
}

void* pointer_to(const Range& range) {
  return reinterpret_cast<void*>(range.address);
}

// Returns the next live block at or after `position`, or null at the end.
template <typename Iterator>
const Block* next_live(Iterator& position, Iterator end) {
  while (position != end && !position->is_live())
    ++position;
  return position == end ? nullptr : &*position;
}

void note(const Range& range, std::vector<Range>& ranges, Amount& amount) {
  ranges.push_back(range);
  ++amount.count;
  amount.bytes += range.bytes;
}

// Walks both lists by address and notes which live blocks end, begin and stay.
void add_difference(const BlockTable::Walk& old_blocks, const BlockList& new_blocks,
                    Transition& transition) {
  auto before = old_blocks.begin();
  auto after = new_blocks.begin();
  for (;;) {
    const Block* const old_block = next_live(before, old_blocks.end());
    const Block* const new_block = next_live(after, new_blocks.end());
    if (old_block == nullptr && new_block == nullptr) break;

    const bool stays = old_block && new_block && old_block->range == new_block->range;
    const bool ends =
        stays || !new_block || (old_block && old_block->range.address <= new_block->range.address);
    const bool begins = stays || !ends;
    const bool is_same = stays && old_block->requested == new_block->requested;
    if (ends) ++before;
    if (begins) ++after;
    if (is_same) continue;
    if (ends) transition.amount_ended.requested += old_block->requested;
    if (begins) transition.amount_began.requested += new_block->requested;
    if (stays) continue;
    if (ends) note(old_block->range, transition.delta.died, transition.amount_ended);
    if (begins) note(new_block->range, transition.delta.became_live, transition.amount_began);
  }
}

}  // namespace

Segment::Segment(SegmentSource& source, std::size_t bytes, StreamId stream, bool makes_room)
    : source_(&source),
      stream_(stream),
      identity_(take(source, bytes, stream, makes_room)),
      range_(*identity_) {
}

Segment::~Segment() {
  if (identity_) source_->free(pointer_to(range_), range_.bytes, stream_);
}

std::shared_ptr<const SegmentExtent> Segment::extent() {
  for (const auto& extent : extents_) {
    if (extent->range == range_) return extent;
  }
  std::erase_if(extents_, [](const auto& extent) { return extent.use_count() == 1; });
  extents_.push_back(std::make_shared<const SegmentExtent>(SegmentExtent{identity_, range_}));
  return extents_.back();
}

std::size_t Segment::pinned_bytes() const noexcept {
  std::size_t most = 0;
  for (const auto& extent : extents_) {
    if (extent.use_count() > 1) most = std::max(most, extent->range.bytes);
  }
  return most;
}

bool Segment::grow(std::size_t grown) {
  return source_->grow(pointer_to(range_), range_.bytes, grown, stream_);
}

void Segment::map(const Range& run) {
  source_->map(pointer_to(range_), range_.bytes, run.address, run.bytes, stream_);
}

bool Segment::unmap(const Range& run) noexcept {
  return source_->unmap(pointer_to(range_), range_.bytes, run.address, run.bytes, stream_);
}

std::size_t Segment::shrink(std::size_t bytes, std::size_t least) noexcept {
  const std::size_t stays = source_->shrink(pointer_to(range_), bytes, least, stream_);
  CGTREE_CHECK(least <= stays && stays <= bytes && stays % kBlockAlignment == 0);
  return stays;
}

void Transition::add(Segment& segment, const BlockTable::Walk& present,
                     std::shared_ptr<const BlockList> list) {
  add_difference(present, *list, *this);
  changes.push_back({&segment, std::move(list)});
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
