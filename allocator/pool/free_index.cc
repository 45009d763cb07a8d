// Finds, inserts and erases in the bins of free blocks.
#include "allocator/pool/free_index.h"

#include <algorithm>
#include <bit>

#include "allocator/pool/block.h"
#include "base/check.h"

namespace cgtree {

inline FreeIndex::Bin FreeIndex::bin_of(std::size_t bytes) noexcept {
  const std::size_t units = bytes / kBlockAlignment;
  const int width = std::bit_width(units | (kSubBins - 1));
  const int octave = width - 6;
  if (octave >= kOctaves) return {kOctaves - 1, kSubBins - 1};
  const int shift = octave - (octave > 0);  // leaves 7 bits, the first of which is the octave's
  return {octave, static_cast<int>(units >> shift) & (kSubBins - 1)};
}

BlockIndex FreeIndex::leftmost(BlockIndex root) const noexcept {
  while (table_[root].child[0] != kNoBlock)
    root = table_[root].child[0];
  return root;
}

BlockIndex FreeIndex::first_of_at_least(BlockIndex root, std::size_t bytes) const noexcept {
  BlockIndex best = kNoBlock;
  while (root != kNoBlock) {
    const bool fits = range(root).bytes >= bytes;
    best = fits ? root : best;
    root = table_[root].child[!fits];
  }
  return best;
}

BlockIndex FreeIndex::best_fit(std::size_t bytes) const noexcept {
  const Bin bin = bin_of(bytes);
  // Only the bin of the request's own size may hold blocks that are too small.
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
  while (table_[block].child[1] != kNoBlock)
    block = table_[block].child[1];
  return table_[block].block.range.bytes;
}

bool FreeIndex::contains(BlockIndex block) const noexcept {
  const Bin bin = bin_of(table_[block].block.range.bytes);
  BlockIndex node = roots_[bin.octave][bin.sub];
  while (node != kNoBlock && node != block)
    node = table_[node].child[!before(range(block), range(node))];
  return node == block;
}

void FreeIndex::insert(BlockIndex block) noexcept {
  const Bin bin = bin_of(table_[block].block.range.bytes);
  BlockIndex* link = &roots_[bin.octave][bin.sub];
  BlockNode& node = table_[block];
  ++size_;
  if (*link == kNoBlock) {
    node.child[0] = node.child[1] = kNoBlock;
    *link = block;
    masks_[bin.octave] |= std::uint64_t{1} << bin.sub;
    octaves_ |= std::uint64_t{1} << bin.octave;
    return;
  }
  while (*link != kNoBlock && table_[*link].priority >= node.priority) {
    link = &table_[*link].child[!before(node.block.range, range(*link))];
  }
  split(*link, block);
  *link = block;
}

// Splits the tree under `root` into the two subtrees of `by`: the nodes before it and after it.
void FreeIndex::split(BlockIndex root, BlockIndex by) noexcept {
  const Range key = range(by);
  BlockIndex* ends[2] = {&table_[by].child[0], &table_[by].child[1]};
  while (root != kNoBlock) {
    const bool second = !before(range(root), key);
    *ends[second] = root;
    ends[second] = &table_[root].child[!second];
    root = *ends[second];
  }
  *ends[0] = *ends[1] = kNoBlock;
}

// Returns the link to `block` in the tree under `root`.
BlockIndex& FreeIndex::link_to(BlockIndex& root, BlockIndex block) noexcept {
  const Range key = range(block);
  BlockIndex* link = &root;
  while (*link != block) {
    CGTREE_CHECK(*link != kNoBlock);
    link = &table_[*link].child[!before(key, range(*link))];
  }
  return *link;
}

void FreeIndex::erase(BlockIndex block) noexcept {
  const Bin bin = bin_of(table_[block].block.range.bytes);
  BlockIndex& root = roots_[bin.octave][bin.sub];
  BlockIndex& link = link_to(root, block);
  --size_;
  merge(table_[block].child[0], table_[block].child[1], &link);
  if (root != kNoBlock) return;
  masks_[bin.octave] &= ~(std::uint64_t{1} << bin.sub);
  if (masks_[bin.octave] == 0) octaves_ &= ~(std::uint64_t{1} << bin.octave);
}

// Joins two trees at `*link`. Requires: every node of `left` comes before every node of `right`.
void FreeIndex::merge(BlockIndex left, BlockIndex right, BlockIndex* link) noexcept {
  while (left != kNoBlock && right != kNoBlock) {
    if (table_[left].priority >= table_[right].priority) {
      *link = left;
      link = &table_[left].child[1];
      left = *link;
    } else {
      *link = right;
      link = &table_[right].child[0];
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
