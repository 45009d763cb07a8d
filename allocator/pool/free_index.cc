// Orders the free blocks of a bin, and walks all bins.
#include "allocator/pool/free_index.h"

#include <bit>

#include "allocator/pool/free_bins.h"
#include "base/check.h"

namespace cgtree {

// Melds pairs of siblings from the first to the last, and the results from the last to the first.
BlockIndex FreeHeap::join(BlockIndex first) noexcept {
  BlockIndex joined = kNoBlock;  // linked by `back`, the last one first
  while (first != kNoBlock) {
    const BlockIndex second = table_[first].free.child[1];
    BlockIndex pair = first;
    BlockIndex next = kNoBlock;
    if (second != kNoBlock) {
      next = table_[second].free.child[1];
      pair = meld(first, second);
    }
    table_[pair].free.back = joined;
    joined = pair;
    first = next;
  }
  BlockIndex root = joined;
  joined = table_[root].free.back;
  while (joined != kNoBlock) {
    const BlockIndex next = table_[joined].free.back;
    root = meld(root, joined);
    joined = next;
  }
  table_[root].free.child[1] = kNoBlock;
  return root;
}

bool FreeTree::contains(BlockIndex node, BlockIndex block) const noexcept {
  while (node != kNoBlock && node != block)
    node = table_[node].free.child[!before(range(block), range(node))];
  return node == block;
}

void FreeTree::insert_among_others(BlockIndex& root, BlockIndex block) noexcept {
  BlockIndex* link = &root;
  while (*link != kNoBlock && priority(*link) >= priority(block))
    link = &table_[*link].free.child[!before(range(block), range(*link))];
  split(*link, block);
  *link = block;
}

// Splits the tree under `root` into the two subtrees of `by`: the nodes before it and after it.
void FreeTree::split(BlockIndex root, BlockIndex by) noexcept {
  const Range key = range(by);
  BlockIndex* ends[2] = {&table_[by].free.child[0], &table_[by].free.child[1]};
  while (root != kNoBlock) {
    const bool second = !before(range(root), key);
    *ends[second] = root;
    ends[second] = &table_[root].free.child[!second];
    root = *ends[second];
  }
  *ends[0] = *ends[1] = kNoBlock;
}

void FreeTree::erase_of_several(BlockIndex& root, BlockIndex block) noexcept {
  const Range key = range(block);
  BlockIndex* link = &root;
  while (*link != block) {
    CGTREE_CHECK(*link != kNoBlock);
    link = &table_[*link].free.child[!before(key, range(*link))];
  }
  merge(table_[block].free.child[0], table_[block].free.child[1], link);
}

// Joins two trees at `*link`. Requires: every node of `left` comes before every node of `right`.
void FreeTree::merge(BlockIndex left, BlockIndex right, BlockIndex* link) noexcept {
  while (left != kNoBlock && right != kNoBlock) {
    if (priority(left) >= priority(right)) {
      *link = left;
      link = &table_[left].free.child[1];
      left = *link;
    } else {
      *link = right;
      link = &table_[right].free.child[0];
      right = *link;
    }
  }
  *link = left != kNoBlock ? left : right;
}

std::size_t FreeIndex::largest() const noexcept {
  if (words_ == 0) return 0;
  const unsigned word = static_cast<unsigned>(std::bit_width(words_)) - 1;
  const unsigned bin = word * 64 + static_cast<unsigned>(std::bit_width(masks_[word])) - 1;
  const BlockIndex root = roots_[bin];
  const BlockIndex last = is_exact(bin) ? root : FreeTree(table_).end(root, 1);
  return table_[last].block.range.bytes;
}

bool FreeIndex::contains(BlockIndex block) const noexcept {
  const unsigned bin = bin_of(table_[block].block.range.bytes);
  if (!is_exact(bin)) return FreeTree(table_).contains(roots_[bin], block);
  // Each node of a heap is the root or what its `back` refers to.
  BlockIndex node = block;
  while (node != roots_[bin]) {
    const BlockIndex back = table_[node].free.back;
    const BlockNode::Links& links = table_[back].free;
    if (back == kNoBlock || (links.child[0] != node && links.child[1] != node)) return false;
    node = back;
  }
  return true;
}

void FreeIndex::validate() const {
  for (unsigned word = 0; word < kWords; ++word) {
    CGTREE_CHECK(((words_ >> word) & 1) == (masks_[word] != 0));
    for (unsigned bit = 0; bit < 64; ++bit)
      CGTREE_CHECK(((masks_[word] >> bit) & 1) == (roots_[word * 64 + bit] != kNoBlock));
  }
}

}  // namespace cgtree
