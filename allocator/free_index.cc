// Finds, inserts and erases in the bins of free blocks.
#include "allocator/free_index.h"

#include <algorithm>
#include <bit>

#include "allocator/sizes.h"
#include "base/check.h"

namespace cgtree {

FreeIndex::Bin FreeIndex::bin_of(std::size_t bytes) noexcept {
  const std::size_t units = bytes / kBlockAlignment;
  const int width = std::bit_width(units | (kSubBins - 1));
  const int shift = std::max(width - 7, 0);
  if (width <= 6) return {0, static_cast<int>(units)};
  if (shift + 1 >= kOctaves) return {kOctaves - 1, kSubBins - 1};
  return {shift + 1, static_cast<int>((units >> shift) - kSubBins)};
}

bool FreeIndex::before(BlockIndex left, BlockIndex right) const noexcept {
  const Range& a = table_[left].block.range;
  const Range& b = table_[right].block.range;
  return a.bytes != b.bytes ? a.bytes < b.bytes : a.address < b.address;
}

BlockIndex FreeIndex::leftmost(BlockIndex root) const noexcept {
  while (table_[root].left != kNoBlock)
    root = table_[root].left;
  return root;
}

BlockIndex FreeIndex::first_of_at_least(BlockIndex root, std::size_t bytes) const noexcept {
  BlockIndex best = kNoBlock;
  while (root != kNoBlock) {
    const bool fits = table_[root].block.range.bytes >= bytes;
    if (fits) best = root;
    root = fits ? table_[root].left : table_[root].right;
  }
  return best;
}

BlockIndex FreeIndex::best_fit(std::size_t bytes) const noexcept {
  const Bin bin = bin_of(bytes);
  // Only in the bin of the request's own size may a block be too small.
  const BlockIndex own = first_of_at_least(roots_[bin.octave][bin.sub], bytes);
  if (own != kNoBlock) return own;

  int octave = bin.octave;
  std::uint64_t mask = masks_[octave] & (~std::uint64_t{1} << bin.sub);
  if (mask == 0) {
    const std::uint64_t larger = octaves_ & (~std::uint64_t{1} << octave);
    if (larger == 0) return kNoBlock;
    octave = std::countr_zero(larger);
    mask = masks_[octave];
  }
  return leftmost(roots_[octave][std::countr_zero(mask)]);
}

std::size_t FreeIndex::largest() const noexcept {
  if (octaves_ == 0) return 0;
  const int octave = std::bit_width(octaves_) - 1;
  BlockIndex block = roots_[octave][std::bit_width(masks_[octave]) - 1];
  while (table_[block].right != kNoBlock)
    block = table_[block].right;
  return table_[block].block.range.bytes;
}

bool FreeIndex::contains(BlockIndex block) const noexcept {
  const Bin bin = bin_of(table_[block].block.range.bytes);
  BlockIndex node = roots_[bin.octave][bin.sub];
  while (node != kNoBlock && node != block)
    node = before(block, node) ? table_[node].left : table_[node].right;
  return node == block;
}

void FreeIndex::insert(BlockIndex block) noexcept {
  const Bin bin = bin_of(table_[block].block.range.bytes);
  BlockIndex* link = &roots_[bin.octave][bin.sub];
  BlockNode& node = table_[block];
  ++size_;
  if (*link == kNoBlock) {
    node.left = node.right = kNoBlock;
    *link = block;
    masks_[bin.octave] |= std::uint64_t{1} << bin.sub;
    octaves_ |= std::uint64_t{1} << bin.octave;
    return;
  }
  while (*link != kNoBlock && table_[*link].priority >= node.priority) {
    link = before(block, *link) ? &table_[*link].left : &table_[*link].right;
  }
  split(*link, block);
  *link = block;
}

// Makes the nodes under `root` that come before `by` its left subtree, the others its right one.
void FreeIndex::split(BlockIndex root, BlockIndex by) noexcept {
  BlockIndex* left = &table_[by].left;
  BlockIndex* right = &table_[by].right;
  while (root != kNoBlock) {
    if (before(root, by)) {
      *left = root;
      left = &table_[root].right;
      root = *left;
    } else {
      *right = root;
      right = &table_[root].left;
      root = *right;
    }
  }
  *left = *right = kNoBlock;
}

// The place where the tree under `root` refers to `block`.
BlockIndex& FreeIndex::link_to(BlockIndex& root, BlockIndex block) noexcept {
  BlockIndex* link = &root;
  while (*link != block) {
    CGTREE_CHECK(*link != kNoBlock);
    link = before(block, *link) ? &table_[*link].left : &table_[*link].right;
  }
  return *link;
}

void FreeIndex::erase(BlockIndex block) noexcept {
  const Bin bin = bin_of(table_[block].block.range.bytes);
  BlockIndex& root = roots_[bin.octave][bin.sub];
  BlockIndex& link = link_to(root, block);
  --size_;
  merge(table_[block].left, table_[block].right, &link);
  if (root != kNoBlock) return;
  masks_[bin.octave] &= ~(std::uint64_t{1} << bin.sub);
  if (masks_[bin.octave] == 0) octaves_ &= ~(std::uint64_t{1} << bin.octave);
}

// Makes `*link` the tree of both; every node of `left` comes before every node of `right`.
void FreeIndex::merge(BlockIndex left, BlockIndex right, BlockIndex* link) noexcept {
  while (left != kNoBlock && right != kNoBlock) {
    if (table_[left].priority >= table_[right].priority) {
      *link = left;
      link = &table_[left].right;
      left = *link;
    } else {
      *link = right;
      link = &table_[right].left;
      right = *link;
    }
  }
  *link = left != kNoBlock ? left : right;
}

void FreeIndex::validate() const {
  for (int octave = 0; octave < kOctaves; ++octave) {
    CGTREE_CHECK(((octaves_ >> octave) & 1) == (masks_[octave] != 0));
    for (int sub = 0; sub < kSubBins; ++sub) {
      CGTREE_CHECK(((masks_[octave] >> sub) & 1) == (roots_[octave][sub] != kNoBlock));
    }
  }
}

}  // namespace cgtree
