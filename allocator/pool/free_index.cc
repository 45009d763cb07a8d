// Finds the largest free block, and checks the bins.
#include "allocator/pool/free_index.h"

#include <algorithm>
#include <bit>

#include "allocator/pool/free_bins.h"
#include "base/check.h"

namespace cgtree {

std::size_t FreeIndex::largest() const noexcept {
  const std::size_t last = range(last_).bytes;
  if (words_ == 0) return last;
  const unsigned word = static_cast<unsigned>(std::bit_width(words_)) - 1;
  const unsigned bin = word * 64 + static_cast<unsigned>(std::bit_width(masks_[word])) - 1;
  const BlockIndex root = roots_[bin];
  const BlockIndex binned = is_exact(bin) ? root : FreeTree(table_).end(root, 1);
  return std::max(last, range(binned).bytes);
}

bool FreeIndex::contains(BlockIndex block) const noexcept {
  if (block == last_) return true;
  const unsigned bin = bin_of(range(block).bytes);
  if (!is_exact(bin)) return FreeTree(table_).contains(roots_[bin], block);
  // Each node of a heap is the root, or is reached by its `back`.
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
