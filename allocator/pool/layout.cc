// Allocates, frees and lists the blocks of one pool.
#include "allocator/pool/layout.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "allocator/pool/sizes.h"
#include "base/check.h"

namespace cgtree {

const Segment* Layout::find(std::uintptr_t address) const {
  const auto after = segments_.upper_bound(address);
  if (after == segments_.begin()) return nullptr;
  const Segment& segment = std::prev(after)->second;
  return address < segment.range().end() ? &segment : nullptr;
}

bool Layout::is_wholly_free(const Segment& segment) const {
  const BlockNode& first = table_[segment.first];
  return first.next == kNoBlock && !first.block.is_live();
}

const BlockNode* Layout::allocate(std::size_t bytes, std::size_t requested) {
  const BlockIndex index = free_.best_fit(bytes);
  if (index == kNoBlock) return nullptr;
  table_.reserve(1);
  live_.reserve(1);
  return &occupy(index, bytes, requested);
}

// Makes the first `bytes` of a free block live. Requires room in the table and in the live index.
const BlockNode& Layout::occupy(BlockIndex index, std::size_t bytes,
                                std::size_t requested) noexcept {
  CGTREE_CHECK(requested > 0 && requested <= bytes);
  free_.erase(index);
  BlockNode& node = table_[index];
  CGTREE_CHECK(!node.block.is_live() && bytes <= node.block.range.bytes);
  const Range whole = node.block.range;
  if (!splits_) bytes = whole.bytes;
  if (bytes < whole.bytes) {
    const BlockIndex rest_index = table_.take();
    BlockNode& rest = table_[rest_index];
    rest.block = {{whole.address + bytes, whole.bytes - bytes}, 0};
    rest.previous = index;
    rest.next = node.next;
    rest.segment = node.segment;
    if (rest.next != kNoBlock) table_[rest.next].previous = rest_index;
    node.next = rest_index;
    free_.insert(rest_index);
  }
  node.block = {{whole.address, bytes}, requested};
  live_.insert(whole.address, index);
  node.segment->thaw();
  return node;
}

// Makes the block after `index` a part of it.
void Layout::absorb_next(BlockIndex index) noexcept {
  BlockNode& node = table_[index];
  const BlockIndex absorbed = node.next;
  node.block.range.bytes += table_[absorbed].block.range.bytes;
  node.next = table_[absorbed].next;
  if (node.next != kNoBlock) table_[node.next].previous = index;
  table_.give_back(absorbed);
}

Layout::Freed Layout::free(std::uintptr_t address) noexcept {
  BlockIndex index = live_.erase(table_, address);
  if (index == kNoBlock) [[unlikely]] {
    return {};
  }
  BlockNode& node = table_[index];
  table_.prefetch(node.previous);  // read after a branch that is a coin toss
  table_.prefetch(node.next);
  const Freed freed{node.block, node.segment->is_small};
  node.block.requested = 0;
  node.segment->thaw();

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

void Layout::add(SegmentMap& segments) {
  table_.reserve(segments.size() + 1);
  live_.reserve(1);
  // From here on nothing takes memory, so nothing is half done.
  while (!segments.empty()) {
    const auto added = segments_.insert(segments.extract(segments.begin()));
    CGTREE_CHECK(added.inserted);
    Segment& segment = added.position->second;
    segment.number = ++segments_seen_;
    const Block whole{segment.range(), 0};
    fill(segment, {&whole, 1});
  }
}

Layout::SegmentMap Layout::extract_all_segments() noexcept {
  SegmentMap extracted;
  while (!segments_.empty())
    extract(segments_.begin(), extracted);
  return extracted;
}

Layout::SegmentMap Layout::extract_free_segments(std::span<const Range> kept) noexcept {
  SegmentMap extracted;
  for (auto position = segments_.begin(); position != segments_.end();) {
    const auto current = position++;
    const Segment& segment = current->second;
    if (!is_wholly_free(segment) || segment.is_growing) continue;
    const bool is_kept = std::any_of(kept.begin(), kept.end(), [&](const Range& range) {
      return range.overlaps(segment.range());
    });
    if (!is_kept) extract(current, extracted);
  }
  return extracted;
}

void Layout::extract(SegmentMap::iterator segment, SegmentMap& extracted) noexcept {
  clear(segment->second);
  extracted.insert(segments_.extract(segment));
}

Layout::SegmentMap Layout::extract_unpinned_segments(std::size_t enough) noexcept {
  SegmentMap extracted;
  for (std::size_t bytes = 0; bytes < enough;) {
    auto largest = segments_.end();
    for (auto position = segments_.begin(); position != segments_.end(); ++position) {
      const Segment& segment = position->second;
      if (!is_wholly_free(segment) || segment.is_pinned() || segment.is_growing) continue;
      const bool larger =
          largest == segments_.end() || segment.range().bytes >= largest->second.range().bytes;
      if (larger) largest = position;
    }
    if (largest == segments_.end()) break;
    bytes += largest->second.range().bytes;
    extract(largest, extracted);
  }
  return extracted;
}

PoolCheckpoint Layout::checkpoint() {
  std::vector<FrozenSegment> frozen;
  frozen.reserve(segments_.size());
  for (auto& [address, segment] : segments_) {
    if (!segment.frozen()) {
      const BlockTable::Walk walk = blocks(segment);
      segment.set_frozen(std::make_shared<const BlockList>(walk.begin(), walk.end()));
    }
    frozen.push_back({segment.extent(), segment.frozen()});
  }
  return PoolCheckpoint(std::move(frozen));
}

void Layout::validate(const Segment& segment) const {
  std::uintptr_t expected = segment.range().address;
  BlockIndex previous = kNoBlock;
  const BlockTable::Walk walk = blocks(segment);
  for (auto position = walk.begin(); position != walk.end(); ++position) {
    const Block& block = *position;
    const BlockNode& node = table_[position.index()];
    CGTREE_CHECK(block.range.address == expected);  // no gap, no overlap
    CGTREE_CHECK(block.range.bytes > 0 && block.range.bytes % kBlockAlignment == 0);
    CGTREE_CHECK(block.requested <= block.range.bytes);
    CGTREE_CHECK(node.previous == previous && node.segment == &segment);
    CGTREE_CHECK(block.is_live() || table_[previous].block.is_live());
    if (block.is_live()) {
      CGTREE_CHECK(live_.find(table_, block.range.address) == position.index());
    } else {
      CGTREE_CHECK(free_.contains(position.index()));
    }
    previous = position.index();
    expected = block.range.end();
  }
  CGTREE_CHECK(expected == segment.range().end());
  CGTREE_CHECK(segment.pinned_bytes() <= segment.range().bytes);
  if (!segment.frozen()) return;
  CGTREE_CHECK(std::equal(walk.begin(), walk.end(), segment.frozen()->begin(),
                          segment.frozen()->end(), [](const Block& block, const Block& frozen) {
                            return block.range == frozen.range &&
                                   block.requested == frozen.requested;
                          }));
}

void Layout::validate() const {
  std::size_t counted = 0;
  std::uintptr_t previous_end = 0;
  for (const auto& [address, segment] : segments_) {
    CGTREE_CHECK(address == segment.range().address && address >= previous_end);
    previous_end = segment.range().end();
    validate(segment);
    const BlockTable::Walk walk = blocks(segment);
    counted += static_cast<std::size_t>(std::distance(walk.begin(), walk.end()));
  }
  // Each block is in the index it belongs to, so equal numbers mean that nothing else is.
  CGTREE_CHECK(free_.size() + live_.size() == counted);
  CGTREE_CHECK(table_.in_use() == counted + (spare_ != kNoBlock));
  free_.validate();
}

}  // namespace cgtree
