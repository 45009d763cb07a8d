// Allocates, frees, grows, shrinks, describes and restores the blocks of one pool.
#include "allocator/pool/layout.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "allocator/pool/block.h"
#include "base/check.h"
#include "base/error.h"
#include "base/format.h"

namespace cgtree {
namespace {

std::string to_string(const Range& range) {
  return str_format("[{:#x}, {:#x})", range.address, range.end());
}

// The first is 1.
std::uint64_t next_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// Throws unless the checkpoint is of this layout, and the layout still has each of its segments.
void expect_own(const PoolCheckpoint& checkpoint, std::uint64_t layout,
                const Layout::SegmentMap& segments) {
  if (checkpoint.layout() != 0 && checkpoint.layout() != layout) {
    throw InvalidArgument(
        str_format("the checkpoint is of another pool, with {} segment(s); restore a checkpoint "
                   "in the pool it was taken of",
                   checkpoint.frozen().size()));
  }
  const Range* first = nullptr;
  std::size_t missing = 0;
  for (const FrozenSegment& target : checkpoint.frozen()) {
    const auto found = segments.find(target.extent->range.address);
    if (found != segments.end() && found->second.identity() == target.identity()) continue;
    if (missing++ == 0) first = &target.extent->range;
  }
  if (missing == 0) return;
  throw InvalidArgument(str_format(
      "the checkpoint has {} segment(s) that this pool does not have any more, the first at {}; "
      "trim() only when no checkpoint is needed any more",
      missing, to_string(*first)));
}

// Returns the blocks of the checkpoint. If the segment has grown since, the new part is free.
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

Layout::Layout(Fit fit) : id_(next_id()), fit_(fit) {
}

// Returns the free block that `fit_` chooses, given the smallest, `best`; kNoBlock for none.
BlockIndex Layout::fit(BlockIndex best, std::size_t bytes) noexcept {
  if (fit_ == Fit::kSmallApart) {
    const bool is_apart = bytes <= kSmallRequest && table_[best].block.range.bytes > kSmallSegment;
    return is_apart ? kNoBlock : best;
  }
  if (table_[best].next != kNoBlock) return best;
  free_.erase(best);
  const BlockIndex hole = free_.best_fit(bytes);
  free_.insert(best);
  return hole != kNoBlock && table_[hole].next != kNoBlock ? hole : best;
}

const BlockNode* Layout::allocate_anywhere(std::size_t bytes, std::size_t requested) {
  if (const BlockNode* const node = allocate(bytes, requested)) return node;
  const BlockIndex index = free_.best_fit(bytes);
  if (index == kNoBlock) return nullptr;
  table_.reserve(1);
  live_.reserve(1);
  return &occupy(index, bytes, requested);
}

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

void Layout::add(SegmentMap& segments) {
  table_.reserve(segments.size() + 1);
  live_.reserve(1);
  // Nothing allocates from here on, so every change is completed.
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

template <typename IsKept>
Layout::SegmentMap Layout::extract_free_segments_unless(IsKept is_kept) noexcept {
  SegmentMap extracted;
  for (auto position = segments_.begin(); position != segments_.end();) {
    const auto current = position++;
    const Segment& segment = current->second;
    if (!is_wholly_free(segment) || segment.is_resizing) continue;
    if (!is_kept(segment)) extract(current, extracted);
  }
  return extracted;
}

Layout::SegmentMap Layout::extract_free_segments(std::span<const Range> kept) noexcept {
  return extract_free_segments_unless([kept](const Segment& segment) {
    return std::any_of(kept.begin(), kept.end(),
                       [&](const Range& range) { return range.overlaps(segment.range()); });
  });
}

Layout::SegmentMap Layout::extract_unpinned_segments() noexcept {
  return extract_free_segments_unless([](const Segment& segment) { return segment.is_pinned(); });
}

void Layout::extract(SegmentMap::iterator segment, SegmentMap& extracted) noexcept {
  clear(segment->second);
  extracted.insert(segments_.extract(segment));
}

PoolCheckpoint Layout::checkpoint() {
  std::vector<FrozenSegment> frozen;
  frozen.reserve(segments_.size());
  for (auto& [address, segment] : segments_) {
    if (!segment.frozen()) {
      const BlockTable::Walk walk = blocks(segment);
      segment.set_frozen(std::make_shared<const BlockList>(walk.begin(), walk.end()));
      has_frozen_ = true;
    }
    frozen.push_back({segment.extent(), segment.frozen()});
  }
  return PoolCheckpoint(id_, std::move(frozen));
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
      CGTREE_CHECK(live_.find(block.range.address) == position.index());
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
  std::size_t spares = 0;
  std::uintptr_t previous_end = 0;
  for (const auto& [address, segment] : segments_) {
    CGTREE_CHECK(address == segment.range().address && address >= previous_end);
    previous_end = segment.range().end();
    validate(segment);
    const BlockTable::Walk walk = blocks(segment);
    counted += static_cast<std::size_t>(std::distance(walk.begin(), walk.end()));
    spares += segment.spare != kNoBlock;
  }
  // Each block is in the right index, so equal numbers mean that the indexes hold nothing else.
  CGTREE_CHECK(free_.size() + live_.size() == counted);
  CGTREE_CHECK(table_.in_use() == counted + spares);
  free_.validate();
}

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
  if (bytes > kLargestRequest - newest->second.range().bytes) return std::nullopt;
  const Block& last = table_[last_block(newest->second)].block;
  const std::size_t tail = last.is_live() ? 0 : last.range.bytes;
  CGTREE_CHECK(tail < bytes);
  return Growth{newest->first, bytes - tail};
}

Segment& Layout::begin_growth(const Growth& growth) {
  Segment& segment = segments_.find(growth.segment)->second;
  CGTREE_CHECK(!segment.is_resizing);
  table_.reserve(1);
  segment.spare = table_.take();
  segment.is_resizing = true;
  return segment;
}

bool Layout::is_resizing() const noexcept {
  return std::any_of(segments_.begin(), segments_.end(),
                     [](const auto& entry) { return entry.second.is_resizing; });
}

void Layout::end_resize(Segment& segment, std::size_t bytes) noexcept {
  CGTREE_CHECK(segment.is_resizing && bytes >= segment.range().bytes);
  segment.is_resizing = false;
  const BlockIndex spare = std::exchange(segment.spare, kNoBlock);
  const Range added{segment.range().end(), bytes - segment.range().bytes};
  const BlockIndex last = last_block(segment);
  const bool coalesces = added.bytes == 0 || !table_[last].block.is_live();
  if (coalesces) table_.give_back(spare);
  if (added.bytes == 0) return;
  segment.set_bytes(bytes);
  if (!segment.pages.is_empty()) segment.pages.set_bytes(bytes);
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

Layout::Shrink Layout::begin_shrink(std::uintptr_t from) noexcept {
  for (auto position = segments_.lower_bound(from); position != segments_.end(); ++position) {
    Segment& segment = position->second;
    if (segment.is_resizing) continue;
    const BlockIndex last = last_block(segment);
    if (table_[last].block.is_live()) continue;
    const std::size_t before = segment.range().bytes;
    const std::size_t used = table_[last].block.range.address - segment.range().address;
    const std::size_t least = std::max(used, segment.pinned_bytes());
    if (least == 0 || least == before) continue;
    try {
      table_.reserve(1);
    } catch (const std::bad_alloc&) {
      break;  // without a spare block, the end could not be restored
    }
    segment.spare = table_.take();
    segment.is_resizing = true;
    segment.set_bytes(least);
    cut_tail(segment, last);
    return {&segment, before};
  }
  return {};
}

Layout::Unmap Layout::begin_unmap(std::size_t most) noexcept {
  for (auto& [address, segment] : segments_) {
    if (segment.is_resizing) continue;
    for (BlockIndex i = last_block(segment); i != kNoBlock; i = table_[i].previous) {
      const Block& block = table_[i].block;
      if (block.is_live()) continue;
      Range free = PageMap::inside({block.range.address - address, block.range.bytes});
      std::optional<Range> run;
      while (const auto next = segment.pages.find(free, true)) {
        run = next;
        free = {next->end(), free.end() - next->end()};
      }
      if (!run) continue;
      const std::size_t bytes = round_up(std::min(run->bytes, most), PageMap::kPage);
      run = Range{run->end() - bytes, bytes};
      segment.is_resizing = true;
      segment.pages.set(*run, false);
      return {&segment, *run};
    }
  }
  return {};
}

void Layout::end_unmap(const Unmap& unmap, bool succeeded) noexcept {
  unmap.segment->is_resizing = false;
  if (!succeeded) unmap.segment->pages.set(unmap.run, true);
}

// Makes the free block `last` end where its segment ends.
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

Transition Layout::transition_to(const PoolCheckpoint& checkpoint) {
  expect_own(checkpoint, id_, segments_);
  Transition transition;
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

// Checks the ranges and rounds them to blocks.
std::vector<Block> Layout::sorted_blocks(std::span<const Range> live) const {
  std::vector<Block> blocks;
  blocks.reserve(live.size());
  for (const Range& range : live) {
    if (range.bytes == 0 || range.address % kBlockAlignment != 0) {
      throw InvalidArgument(
          str_format("live range {} is empty or does not start at a multiple "
                     "of {}; give the ranges that allocate() returned",
                     to_string(range), kBlockAlignment));
    }
    const Segment* const segment = find(range.address);
    // Sizes are compared, because end() may wrap around.
    if (segment == nullptr || range.bytes > segment->range().end() - range.address) {
      throw InvalidArgument(str_format(
          "live range at {:#x} of {} bytes {}", range.address, range.bytes,
          segment ? "crosses the end of its segment " + to_string(segment->range())
                  : "lies in no segment of this pool; restore only what was allocated in it"));
    }
    Block block{{range.address, block_bytes(range.bytes)}, range.bytes};
    const BlockIndex present = live_.find(range.address);
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
    throw InvalidArgument(str_format("live ranges {} and {} overlap", to_string(clash->range),
                                     to_string(std::next(clash)->range)));
  }
  return blocks;
}

Transition Layout::transition_to(std::span<const Range> live) {
  const std::vector<Block> wanted = sorted_blocks(live);
  Transition transition;
  auto first = wanted.begin();
  for (auto& [address, segment] : segments_) {
    const std::uintptr_t end = segment.range().end();
    const auto last = std::find_if(first, wanted.end(),
                                   [&](const Block& block) { return block.range.address >= end; });
    BlockList list = tile(segment.range(), std::span<const Block>(first, last));
    first = last;
    const BlockTable::Walk present = blocks(segment);
    if (std::equal(list.begin(), list.end(), present.begin(), present.end(), same_layout)) continue;
    transition.add(segment, present, std::make_shared<BlockList>(std::move(list)));
  }
  reserve_for(transition);
  return transition;
}

// Makes room for the blocks of all changes, so that apply() does not allocate.
void Layout::reserve_for(const Transition& transition) {
  std::size_t count = 0;
  for (const SegmentChange& change : transition.changes)
    count += change.list->size();
  table_.reserve(count);
  live_.reserve(transition.delta.became_live.size());
}

void Layout::apply(Transition& transition) noexcept {
  // All old blocks are removed first: the live index only has room for the difference.
  for (const SegmentChange& change : transition.changes)
    clear(*change.segment);
  for (SegmentChange& change : transition.changes) {
    fill(*change.segment, *change.list);
    change.segment->set_frozen(std::move(change.list));
    has_frozen_ = true;
  }
}

// Removes the segment's blocks from the indexes and the table.
void Layout::clear(Segment& segment) noexcept {
  BlockIndex index = segment.first;
  segment.first = kNoBlock;
  while (index != kNoBlock) {
    const BlockNode& node = table_[index];
    if (node.block.is_live()) {
      live_.erase(node.block.range.address);
    } else {
      free_.erase(index);
    }
    table_.give_back(std::exchange(index, node.next));
  }
}

// Adds the blocks of `list` to a segment without blocks. Requires: there is room in the table and
// the live index.
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
      live_.insert(index);
    } else {
      free_.insert(index);
    }
    previous = index;
  }
}

std::string Layout::describe(std::uintptr_t address) const {
  if (address == 0) return "null";
  const Segment* const segment = find(address);
  if (segment == nullptr) return str_format("{:#x}, in no segment of the pool", address);
  const BlockTable::Walk walk = blocks(*segment);
  const Block block = *std::find_if(walk.begin(), walk.end(), [&](const Block& candidate) {
    return address < candidate.range.end();
  });
  const std::string place =
      str_format("block [{:#x}, {:#x}) of segment [{:#x}, {:#x})", block.range.address,
                 block.range.end(), segment->range().address, segment->range().end());
  if (!block.is_live()) return str_format("{:#x}, already free: in the free {}", address, place);
  const std::size_t offset = address - block.range.address;
  if (offset == 0) return str_format("{:#x}, the live {}", address, place);
  return str_format("{:#x}, {} bytes into the live {}", address, offset, place);
}

}  // namespace cgtree
