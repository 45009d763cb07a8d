// FreeIndex: the free blocks of one pool, in bins by size.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "allocator/pool/block_table.h"
#include "allocator/pool/free_bins.h"

namespace cgtree {

// A FreeIndex has 256 linear bins per power of two, and bit masks find the first non-empty bin.
// Below 256 KiB all blocks of a bin have one size, and form a heap by address (FreeHeap). In the
// other bins they form a tree by (bytes, address), which usually has one node (FreeTree).
//
// The last inserted block is in no bin until another is inserted: often it is erased first, for a
// request of its size, or because it coalesces with the next freed block.
//
// The order is total, so the block for a request is a function of the layout and not of its
// history: restored layouts serve equal requests with equal addresses.
//
// Invariant: a bit of a mask is set if and only if its bin is not empty.
class FreeIndex {
 public:
  explicit FreeIndex(BlockTable& table) : table_(table) {}

  // Returns the smallest block of at least `bytes` (> 0), the lowest of several, or kNoBlock.
  BlockIndex best_fit(std::size_t bytes) const noexcept {
    const unsigned bin = bin_of(bytes);
    const BlockIndex root = roots_[bin];
    const Range& last = range(last_);
    if (last.bytes == bytes && root == kNoBlock) return last_;
    const BlockIndex binned = best_of_bins(bin, root, bytes);
    // kNoBlock has no bytes, so it never fits, and minus one byte it is larger than all.
    const bool is_last = (last.bytes >= bytes) & before(last, range(binned));
    return is_last ? last_ : binned;
  }

  std::size_t largest() const noexcept;  // in bytes; 0 without a block
  std::size_t size() const { return size_; }
  bool contains(BlockIndex block) const noexcept;

  // insert() and erase() do not allocate. Neither the size nor the address of a block may change
  // while it is in the index.
  void insert(BlockIndex block) noexcept {
    ++size_;
    if (last_ != kNoBlock) put_in_bin(last_);
    last_ = block;
  }

  void erase(BlockIndex block) noexcept {
    --size_;
    if (block == last_) {
      last_ = kNoBlock;
    } else {
      take_from_bin(block);
    }
  }

  // Aborts if a mask and its bins disagree.
  void validate() const;

 private:
  static constexpr int kSubBits = 9;
  static constexpr unsigned kSubBins = 1 << kSubBits;
  static constexpr unsigned kWords = 64;  // of masks: the number of bits of `words_`
  // The first bins hold up to kSubBins - 1 units of kBlockAlignment, and each later group of
  // kSubBins / 2 bins a power of two more; the last bin, below 4 GiB, also holds everything larger.
  static constexpr unsigned kBins = kWords * 64;

  static unsigned bin_of(std::size_t bytes) noexcept {
    const std::size_t units = bytes / kBlockAlignment;
    const int shift = std::bit_width(units | (kSubBins - 1)) - kSubBits;
    // The first kSubBits bits are a number of at least kSubBins / 2, unless the shift is 0.
    const std::size_t bin = (static_cast<std::size_t>(shift) << (kSubBits - 1)) + (units >> shift);
    return bin < kBins ? static_cast<unsigned>(bin) : kBins - 1;
  }
  static bool is_exact(unsigned bin) noexcept { return bin < kSubBins; }

  const Range& range(BlockIndex block) const noexcept { return table_[block].block.range; }
  static bool before(const Range& a, const Range& b) noexcept {
    return FreeTree::before({a.address, a.bytes - 1}, {b.address, b.bytes - 1});
  }

  BlockIndex best_of_bins(unsigned bin, BlockIndex root, std::size_t bytes) const noexcept {
    // Only the bin of the request's own size may hold blocks that are too small.
    if (root != kNoBlock) {
      if (is_exact(bin)) return root;
      const BlockIndex own = FreeTree(table_).first_of_at_least(root, bytes);
      if (own != kNoBlock) return own;
    }
    unsigned word = bin / 64;
    std::uint64_t mask = masks_[word] & (~std::uint64_t{1} << bin % 64);
    if (mask == 0) {
      const std::uint64_t larger = words_ & (~std::uint64_t{1} << word);
      if (larger == 0) return kNoBlock;
      word = static_cast<unsigned>(std::countr_zero(larger));
      mask = masks_[word];
    }
    const unsigned next = word * 64 + static_cast<unsigned>(std::countr_zero(mask));
    return is_exact(next) ? roots_[next] : FreeTree(table_).end(roots_[next], 0);
  }

  void put_in_bin(BlockIndex block) noexcept {
    const unsigned bin = bin_of(range(block).bytes);
    BlockIndex& root = roots_[bin];
    table_[block].free = {};
    if (root == kNoBlock) {
      root = block;
      masks_[bin / 64] |= std::uint64_t{1} << bin % 64;
      words_ |= std::uint64_t{1} << bin / 64;
    } else if (is_exact(bin)) {
      FreeHeap(table_).insert(root, block);
    } else {
      FreeTree(table_).insert(root, block);
    }
  }

  void take_from_bin(BlockIndex block) noexcept {
    const unsigned bin = bin_of(range(block).bytes);
    BlockIndex& root = roots_[bin];
    const BlockNode::Links& links = table_[block].free;
    const bool is_alone = root == block && (links.child[0] | links.child[1]) == kNoBlock;
    if (is_alone) {
      root = kNoBlock;
    } else if (is_exact(bin)) {
      FreeHeap(table_).erase(root, block);
    } else {
      FreeTree(table_).erase(root, block);
    }
    // Without branches, which would often be mispredicted.
    std::uint64_t& mask = masks_[bin / 64];
    mask &= ~(std::uint64_t{root == kNoBlock} << bin % 64);
    words_ &= ~(std::uint64_t{mask == 0} << bin / 64);
  }

  BlockTable& table_;
  BlockIndex last_ = kNoBlock;
  std::uint64_t words_ = 0;  // bit w: masks_[w] is not 0
  std::size_t size_ = 0;
  std::array<std::uint64_t, kWords> masks_{};  // bit b of w: bin 64 w + b is not empty
  std::array<BlockIndex, kBins> roots_{};
};

}  // namespace cgtree
