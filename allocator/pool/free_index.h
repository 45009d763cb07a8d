// FreeIndex: the free blocks of one pool, in bins by size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "allocator/pool/block_table.h"

namespace cgtree {

// A FreeIndex has 64 linear sub-bins per power of two, and bit masks find the first that is not
// empty. Within a bin the blocks form a treap ordered by (bytes, address); usually it has one node,
// and it is never a long list.
//
// The order is total, so the block that a request gets is a function of the layout and not of its
// history: restored layouts serve equal requests with equal addresses.
//
// Invariant: a bit of a mask is set if and only if its bin is not empty.
class FreeIndex {
 public:
  explicit FreeIndex(BlockTable& table) : table_(table) {}

  // Returns the smallest block of at least `bytes` (> 0), the lowest of several, or kNoBlock.
  BlockIndex best_fit(std::size_t bytes) const noexcept;

  std::size_t largest() const noexcept;  // in bytes; 0 without a block
  std::size_t size() const { return size_; }
  bool contains(BlockIndex block) const noexcept;

  // insert() and erase() do not allocate. Neither the size nor the address of a block may change
  // while it is in the index.
  void insert(BlockIndex block) noexcept;
  void erase(BlockIndex block) noexcept;

  // Aborts if a mask and its bins disagree.
  void validate() const;

 private:
  static constexpr int kSubBins = 64;
  // Octave 0 holds up to 63 units of kBlockAlignment, each later one a power of two more; the last
  // sub-bin, below 32 TiB, also holds everything larger.
  static constexpr int kOctaves = 31;

  struct Bin {
    int octave;
    int sub;
  };
  static Bin bin_of(std::size_t bytes) noexcept;

  // Compares (bytes, address) as one wide number, because a branch would be mispredicted half the
  // time.
  static bool before(const Range& a, const Range& b) noexcept {
    using Wide = unsigned __int128;
    return (Wide{a.bytes} << 64 | a.address) < (Wide{b.bytes} << 64 | b.address);
  }
  const Range& range(BlockIndex block) const noexcept { return table_[block].block.range; }
  BlockIndex first_of_at_least(BlockIndex root, std::size_t bytes) const noexcept;
  BlockIndex leftmost(BlockIndex root) const noexcept;
  BlockIndex& link_to(BlockIndex& root, BlockIndex block) noexcept;
  void split(BlockIndex root, BlockIndex by) noexcept;
  void merge(BlockIndex left, BlockIndex right, BlockIndex* link) noexcept;

  BlockTable& table_;
  std::array<std::array<BlockIndex, kSubBins>, kOctaves> roots_{};
  std::array<std::uint64_t, kOctaves> masks_{};  // bit s: sub-bin s is not empty
  std::uint64_t octaves_ = 0;                    // bit o: masks_[o] is not 0
  std::size_t size_ = 0;
};

}  // namespace cgtree
