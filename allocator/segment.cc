// Splits and coalesces the blocks of one segment.
#include "allocator/segment.h"

#include <iterator>
#include <utility>

#include "allocator/sizes.h"
#include "base/check.h"

namespace cgtree {
namespace {

// Gives the memory back if making its descriptors throws.
std::shared_ptr<const Range> take(SegmentSource& source, std::size_t bytes) {
  auto identity = std::make_shared<Range>();
  void* const memory = source.allocate(bytes);
  CGTREE_CHECK(memory != nullptr);
  *identity = {reinterpret_cast<std::uintptr_t>(memory), bytes};
  CGTREE_CHECK(identity->address % kBlockAlignment == 0);
  return identity;
}

void give_back(SegmentSource& source, const Range& range) noexcept {
  source.free(reinterpret_cast<void*>(range.address), range.bytes);
}

}  // namespace

Segment::Segment(SegmentSource& source, std::size_t bytes) : source_(&source) {
  auto node = BlockMap{{0, Block{}}}.extract(0);  // made first: nothing may throw after take()
  identity_ = take(source, bytes);
  node.key() = range().address;
  node.mapped().range = range();
  blocks_.insert(std::move(node));
}

Segment::~Segment() {
  if (identity_) give_back(*source_, range());
}

Segment::Segment(Segment&& other) noexcept
    : source_(other.source_),
      identity_(std::move(other.identity_)),
      blocks_(std::move(other.blocks_)),
      frozen_(std::move(other.frozen_)) {
}

Range Segment::allocate(std::uintptr_t address, std::size_t bytes, std::size_t requested) {
  const auto found = blocks_.find(address);
  CGTREE_CHECK(found != blocks_.end());
  Block& block = found->second;
  CGTREE_CHECK(!block.is_live() && requested > 0 && requested <= bytes);
  CGTREE_CHECK(bytes <= block.range.bytes);

  const Range remainder{address + bytes, block.range.bytes - bytes};
  if (remainder.bytes > 0) {
    blocks_.emplace_hint(std::next(found), remainder.address, Block{remainder, 0});
  }
  block = {{address, bytes}, requested};
  frozen_.reset();
  return remainder;
}

Coalesced Segment::free(std::uintptr_t address) noexcept {
  const auto found = blocks_.find(address);
  CGTREE_CHECK(found != blocks_.end() && found->second.is_live());  // else foreign or freed before
  Coalesced result{found->second, found->second.range, {}, {}};
  frozen_.reset();

  auto kept = found;
  kept->second.requested = 0;
  const auto right = std::next(found);
  if (right != blocks_.end() && !right->second.is_live()) {
    result.right = right->second.range;
    kept->second.range.bytes += result.right.bytes;
    blocks_.erase(right);
  }
  if (found != blocks_.begin() && !std::prev(found)->second.is_live()) {
    kept = std::prev(found);
    result.left = kept->second.range;
    kept->second.range.bytes += found->second.range.bytes;
    blocks_.erase(found);
  }
  result.merged = kept->second.range;
  return result;
}

std::shared_ptr<const BlockList> Segment::freeze() const {
  if (!frozen_) {
    BlockList list;
    list.reserve(blocks_.size());
    for (const auto& [address, block] : blocks_)
      list.push_back(block);
    frozen_ = std::make_shared<const BlockList>(std::move(list));
  }
  return frozen_;
}

void Segment::exchange(BlockMap& blocks, std::shared_ptr<const BlockList> frozen) noexcept {
  blocks_.swap(blocks);
  frozen_ = std::move(frozen);
}

void Segment::validate() const {
  std::uintptr_t expected = range().address;
  bool previous_free = false;
  for (const auto& [address, block] : blocks_) {
    CGTREE_CHECK(address == block.range.address);
    CGTREE_CHECK(address == expected);  // no gap, no overlap
    CGTREE_CHECK(block.range.bytes > 0 && block.range.bytes % kBlockAlignment == 0);
    CGTREE_CHECK(block.requested <= block.range.bytes);
    CGTREE_CHECK(block.is_live() || !previous_free);
    previous_free = !block.is_live();
    expected = block.range.end();
  }
  CGTREE_CHECK(expected == range().end());
  if (frozen_) {
    CGTREE_CHECK(frozen_->size() == blocks_.size());
    auto block = frozen_->begin();
    for (const auto& [address, present] : blocks_) {
      CGTREE_CHECK(block->range == present.range && block->requested == present.requested);
      ++block;
    }
  }
}

}  // namespace cgtree
