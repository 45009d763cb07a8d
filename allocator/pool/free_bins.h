// FreeHeap and FreeTree: orders of the free blocks of one bin.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/pool/block_table.h"

namespace cgtree {

// A FreeHeap is a pairing heap of blocks of one size; its root is the lowest. A node has its first
// child, its next sibling, and a back link: its previous sibling or, for a first child, its parent;
// the back link of a root is not read. If there is no neighbour, the node at kNoBlock is written,
// but not read.
//
// Example: 5, 3 and 9 are inserted. 3 replaces 5 and gets it as a child, and then 9 as its first
// child. If 3 is erased, its children 9 and 5 are paired: 5 is the root and has the child 9.
class FreeHeap {
 public:
  explicit FreeHeap(BlockTable& table) : table_(table) {}

  // Requires: the links of `block` are kNoBlock. In an empty heap it melds with kNoBlock, which
  // looks higher and becomes no child.
  void insert(BlockIndex& root, BlockIndex block) noexcept { root = meld(root, block); }

  void erase(BlockIndex& root, BlockIndex block) noexcept {
    const BlockNode::Links links = table_[block].free;
    const BlockIndex children = links.child[0] == kNoBlock ? kNoBlock : join(links.child[0]);
    if (block == root) {
      root = children;
      return;
    }
    BlockNode::Links& before = table_[links.back].free;
    (before.child[0] == block ? before.child[0] : before.child[1]) = links.child[1];
    table_[links.child[1]].free.back = links.back;
    if (children != kNoBlock) root = meld(root, children);
  }

 private:
  std::uintptr_t address(BlockIndex block) const noexcept {
    return table_[block].block.range.address;
  }

  // Makes the higher of two roots the first child of the lower one and returns that. It has no
  // branch, because each would be mispredicted half the time.
  BlockIndex meld(BlockIndex a, BlockIndex b) noexcept {
    const BlockIndex difference = (a ^ b) & (0 - BlockIndex{address(b) < address(a)});
    const BlockIndex low = a ^ difference, high = b ^ difference;
    BlockNode::Links& parent = table_[low].free;
    BlockNode::Links& child = table_[high].free;
    table_[parent.child[0]].free.back = high;
    child.child[1] = parent.child[0];
    child.back = low;
    parent.child[0] = high;
    return low;
  }

  // Joins siblings, from the first on, into one heap.
  BlockIndex join(BlockIndex first) noexcept;

  BlockTable& table_;
};

// A FreeTree is a treap ordered by (bytes, address).
class FreeTree {
 public:
  explicit FreeTree(BlockTable& table) : table_(table) {}

  // Compares (bytes, address) as one wide number, because a branch would be mispredicted half the
  // time.
  static bool before(const Range& a, const Range& b) noexcept {
    using Wide = unsigned __int128;
    return (Wide{a.bytes} << 64 | a.address) < (Wide{b.bytes} << 64 | b.address);
  }

  // Returns the first block of at least `bytes`, or kNoBlock.
  BlockIndex first_of_at_least(BlockIndex root, std::size_t bytes) const noexcept {
    BlockIndex best = kNoBlock;
    while (root != kNoBlock) {
      const bool fits = range(root).bytes >= bytes;
      best = fits ? root : best;
      root = table_[root].free.child[!fits];
    }
    return best;
  }

  // Returns the first (side 0) or the last block (side 1). Requires: the tree is not empty.
  BlockIndex end(BlockIndex root, int side) const noexcept {
    while (table_[root].free.child[side] != kNoBlock)
      root = table_[root].free.child[side];
    return root;
  }

  bool contains(BlockIndex root, BlockIndex block) const noexcept;

  // Requires: the links of `block` are kNoBlock.
  void insert(BlockIndex& root, BlockIndex block) noexcept;
  void erase(BlockIndex& root, BlockIndex block) noexcept;

 private:
  const Range& range(BlockIndex block) const noexcept { return table_[block].block.range; }
  // Constant for a slot, and without visible order: a multiplication mixes the upper bits.
  static std::uint32_t priority(BlockIndex block) noexcept { return block * 0x9e3779b1; }

  void split(BlockIndex root, BlockIndex by) noexcept;
  void merge(BlockIndex left, BlockIndex right, BlockIndex* link) noexcept;

  BlockTable& table_;
};

}  // namespace cgtree
