// Allocates, frees and lists the blocks of one pool.
#include "allocator/layout.h"

#include <iterator>
#include <utility>

#include "base/check.h"

namespace cgtree {

const Segment* Layout::find(std::uintptr_t address) const {
  const auto after = segments_.upper_bound(address);
  if (after == segments_.begin()) return nullptr;
  const Segment& segment = std::prev(after)->second;
  return address < segment.range().end() ? &segment : nullptr;
}

Segment* Layout::find_mutable(std::uintptr_t address) {
  return const_cast<Segment*>(find(address));
}

std::optional<Range> Layout::allocate(std::size_t bytes, std::size_t requested) {
  const std::optional<Range> block = free_.best_fit(bytes);
  if (!block) return std::nullopt;
  const Range remainder = find_mutable(block->address)->allocate(block->address, bytes, requested);
  free_.replace(*block, remainder);
  return Range{block->address, bytes};
}

Block Layout::free(std::uintptr_t address) noexcept {
  Segment* const segment = find_mutable(address);
  CGTREE_CHECK(segment != nullptr);  // else the pointer is not of this pool
  const Coalesced result = segment->free(address);
  if (result.left.bytes > 0) {
    free_.replace(result.left, result.merged);
    if (result.right.bytes > 0) free_.erase(result.right);
  } else if (result.right.bytes > 0) {
    free_.replace(result.right, result.merged);
  } else {
    free_.insert(result.merged);
  }
  return result.freed;
}

void Layout::add(Segment segment) {
  FreeIndex free;
  for (const auto& [address, block] : segment.blocks()) {
    if (!block.is_live()) free.insert(block.range);
  }
  SegmentMap added;
  const std::uintptr_t address = segment.range().address;
  added.emplace(address, std::move(segment));
  free_.absorb(free);  // from here on nothing takes memory, so nothing is half done
  segments_.merge(added);
  CGTREE_CHECK(added.empty());
}

Layout::SegmentMap Layout::extract_free_segments() noexcept {
  SegmentMap extracted;
  for (auto position = segments_.begin(); position != segments_.end();) {
    const auto current = position++;
    if (!current->second.is_wholly_free()) continue;
    free_.erase(current->second.range());
    extracted.insert(segments_.extract(current));
  }
  return extracted;
}

PoolCheckpoint Layout::checkpoint() const {
  std::vector<FrozenSegment> frozen;
  frozen.reserve(segments_.size());
  for (const auto& [address, segment] : segments_) {
    frozen.push_back({segment.identity(), segment.freeze()});
  }
  return PoolCheckpoint(std::move(frozen));
}

void Layout::validate() const {
  std::size_t free_blocks = 0;
  std::uintptr_t previous_end = 0;
  for (const auto& [address, segment] : segments_) {
    CGTREE_CHECK(address == segment.range().address && address >= previous_end);
    previous_end = segment.range().end();
    segment.validate();
    for (const auto& [start, block] : segment.blocks()) {
      if (block.is_live()) continue;
      CGTREE_CHECK(free_.contains(block.range));
      ++free_blocks;
    }
  }
  CGTREE_CHECK(free_blocks == free_.size());
}

}  // namespace cgtree
