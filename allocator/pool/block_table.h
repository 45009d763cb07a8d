// BlockTable: the descriptors of all blocks of one pool, in one slab.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "allocator/pool/block.h"

namespace cgtree {

class Segment;

// A BlockIndex is the index of a descriptor in the slab: half as large as a pointer, and still
// valid after the slab has grown.
using BlockIndex = std::uint32_t;
inline constexpr BlockIndex kNoBlock = 0;

// A BlockNode is the descriptor of a block. It fills one cache line, so that a step to a neighbour
// is one miss.
struct alignas(64) BlockNode {
  Block block;
  BlockIndex previous = kNoBlock;  // neighbours in the segment, by address
  BlockIndex next = kNoBlock;
  // Links connect the free blocks of a bin (free_bins.h).
  struct Links {
    BlockIndex child[2] = {};
    BlockIndex back = kNoBlock;
  };
  Links free;
  BlockIndex next_of_hash = kNoBlock;  // of a live block (LiveIndex)
  Segment* segment = nullptr;
};
static_assert(sizeof(BlockNode) == 64);

// A BlockTable is the slab. The node at kNoBlock stands for "no neighbour": it looks live, so that
// a free block does not coalesce with it, and higher than all others. Its links may be written, so
// that no branch has to test for a neighbour, but they are not read.
class BlockTable {
 public:
  BlockTable();

  BlockNode& operator[](BlockIndex index) { return nodes_[index]; }
  const BlockNode& operator[](BlockIndex index) const { return nodes_[index]; }

  void prefetch(BlockIndex index) const { __builtin_prefetch(&nodes_[index], 1); }

  // Makes room, so that the next `count` calls of take() do not allocate. Throws std::bad_alloc.
  void reserve(std::size_t count) {
    if (count > available_) grow(count);
  }

  // Returns a slot made by reserve(). Its `free` belongs to FreeIndex.
  BlockIndex take() noexcept;
  void give_back(BlockIndex index) noexcept;

  std::size_t in_use() const { return nodes_.size() - 1 - available_; }

  // An Iterator walks the blocks of a segment.
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Block;
    using difference_type = std::ptrdiff_t;
    using pointer = const Block*;
    using reference = const Block&;

    Iterator() = default;
    Iterator(const BlockTable& table, BlockIndex index) : table_(&table), index_(index) {}
    reference operator*() const { return (*table_)[index_].block; }
    pointer operator->() const { return &**this; }
    Iterator& operator++() {
      index_ = (*table_)[index_].next;
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    BlockIndex index() const { return index_; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.index_ == b.index_; }

   private:
    const BlockTable* table_ = nullptr;
    BlockIndex index_ = kNoBlock;
  };

  struct Walk {
    Iterator first, last;
    Iterator begin() const { return first; }
    Iterator end() const { return last; }
  };
  Walk walk(BlockIndex first) const { return {{*this, first}, {*this, kNoBlock}}; }

 private:
  void grow(std::size_t count);

  std::vector<BlockNode> nodes_;
  BlockIndex available_first_ = kNoBlock;  // linked by `next`
  std::size_t available_ = 0;
};

inline BlockIndex BlockTable::take() noexcept {
  const BlockIndex index = available_first_;
  available_first_ = nodes_[index].next;
  --available_;
  return index;
}

inline void BlockTable::give_back(BlockIndex index) noexcept {
  nodes_[index].next = available_first_;
  available_first_ = index;
  ++available_;
}

}  // namespace cgtree
