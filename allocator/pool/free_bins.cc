// Joins the siblings of a heap, and changes trees of several blocks.
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
  return root;
}

bool FreeTree::contains(BlockIndex node, BlockIndex block) const noexcept {
  while (node != kNoBlock && node != block)
    node = table_[node].free.child[!before(range(block), range(node))];
  return node == block;
}

void FreeTree::insert(BlockIndex& root, BlockIndex block) noexcept {
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

void FreeTree::erase(BlockIndex& root, BlockIndex block) noexcept {
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

}  // namespace cgtree
