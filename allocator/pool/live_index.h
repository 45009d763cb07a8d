// LiveIndex: the live blocks of one pool by address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/pool/block_table.h"

namespace cgtree {

// A LiveIndex is a hash with chains through the descriptors, at most a quarter as many as heads:
// nearly always a call reads one head and the descriptor that it looks for.
class LiveIndex {
 public:
  explicit LiveIndex(BlockTable& table);

  std::size_t size() const { return size_; }

  // Makes room, so that `count` more insertions do not allocate. Throws std::bad_alloc.
  void reserve(std::size_t count) {
    if (size_ + count > most_) [[unlikely]] {
      grow(size_ + count);
    }
  }

  // Inserts a block by its address. Requires: there is room, and the address is not in the index.
  void insert(BlockIndex block) noexcept {
    BlockIndex& head = heads_[hash(table_[block].block.range.address)];
    table_[block].next_of_hash = head;
    head = block;
    ++size_;
  }

  // The next two return kNoBlock if the address is not in the index.
  BlockIndex find(std::uintptr_t address) const noexcept {
    BlockIndex block = heads_[hash(address)];
    while (block != kNoBlock && table_[block].block.range.address != address)
      block = table_[block].next_of_hash;
    return block;
  }
  BlockIndex erase(std::uintptr_t address) noexcept {
    BlockIndex* link = &heads_[hash(address)];
    while (*link != kNoBlock && table_[*link].block.range.address != address)
      link = &table_[*link].next_of_hash;
    const BlockIndex block = *link;
    if (block == kNoBlock) return kNoBlock;
    *link = table_[block].next_of_hash;
    --size_;
    return block;
  }

 private:
  // Fibonacci hashing spreads the regular strides of block addresses.
  std::size_t hash(std::uintptr_t address) const { return address * 0x9e3779b97f4a7c15 >> shift_; }
  void grow(std::size_t count);

  BlockTable& table_;
  std::vector<BlockIndex> heads_;  // their number is a power of two
  int shift_;                      // 64 - log2 of their number
  std::size_t size_ = 0;
  std::size_t most_;  // a quarter of the heads
};

}  // namespace cgtree
