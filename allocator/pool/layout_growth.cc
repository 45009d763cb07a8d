// Lets segments grow and shrink at their ends.
#include <algorithm>
#include <utility>

#include "allocator/pool/layout.h"
#include "base/check.h"

namespace cgtree {

BlockIndex Layout::last_block(const Segment& segment) const noexcept {
  BlockIndex index = segment.first;
  while (table_[index].next != kNoBlock)
    index = table_[index].next;
  return index;
}

std::optional<Layout::Growth> Layout::growth_for(std::size_t bytes) const noexcept {
  const auto older = [](const auto& a, const auto& b) { return a.second.number < b.second.number; };
  const auto newest = std::max_element(segments_.begin(), segments_.end(), older);
  if (newest == segments_.end()) return std::nullopt;
  const Block& last = table_[last_block(newest->second)].block;
  const std::size_t tail = last.is_live() ? 0 : last.range.bytes;
  CGTREE_CHECK(tail < bytes);
  return Growth{newest->first, bytes - tail};
}

Segment& Layout::begin_growth(const Growth& growth) {
  CGTREE_CHECK(spare_ == kNoBlock);
  table_.reserve(1);
  Segment& segment = segments_.find(growth.segment)->second;
  spare_ = table_.take();
  segment.is_growing = true;
  return segment;
}

void Layout::end_growth(Segment& segment, std::size_t bytes) noexcept {
  CGTREE_CHECK(segment.is_growing && bytes >= segment.range().bytes);
  segment.is_growing = false;
  const BlockIndex spare = std::exchange(spare_, kNoBlock);
  const Range added{segment.range().end(), bytes - segment.range().bytes};
  const BlockIndex last = last_block(segment);
  const bool coalesces = added.bytes == 0 || !table_[last].block.is_live();
  if (coalesces) table_.give_back(spare);
  if (added.bytes == 0) return;
  segment.set_bytes(bytes);
  segment.thaw();
  if (coalesces) {
    free_.erase(last);
    table_[last].block.range.bytes += added.bytes;
    free_.insert(last);
    return;
  }
  BlockNode& node = table_[spare];
  node.block = {added, 0};
  node.previous = last;
  node.next = kNoBlock;
  node.segment = &segment;
  table_[last].next = spare;
  free_.insert(spare);
}

Amount Layout::shrink_segments() noexcept {
  Amount shrunk;
  for (auto& [address, segment] : segments_) {
    if (segment.is_growing) continue;
    const BlockIndex last = last_block(segment);
    if (table_[last].block.is_live()) continue;
    const std::size_t before = segment.range().bytes;
    const std::size_t used = table_[last].block.range.address - address;
    const std::size_t least = std::max(used, segment.pinned_bytes());
    if (least == 0 || least == before) continue;
    segment.shrink(least);
    if (segment.range().bytes == before) continue;
    ++shrunk.count;
    shrunk.bytes += before - segment.range().bytes;
    cut_tail(segment, last);
  }
  return shrunk;
}

// Lets the free block `last` end where its segment does.
void Layout::cut_tail(Segment& segment, BlockIndex last) noexcept {
  Range& range = table_[last].block.range;
  if (range.end() == segment.range().end()) return;
  segment.thaw();
  free_.erase(last);
  range.bytes = segment.range().end() - range.address;
  if (range.bytes > 0) {
    free_.insert(last);
    return;
  }
  table_[table_[last].previous].next = kNoBlock;
  table_.give_back(last);
}

}  // namespace cgtree
