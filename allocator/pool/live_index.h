// LiveIndex: the live blocks of one pool by address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocator/pool/block_table.h"

namespace cgtree {

// A LiveIndex is a flat hash with linear probing, at most a quarter full, so that a probe and the
// gap that an entry leaves are one slot nearly always. A slot holds the upper half of the address's
// hash beside the index, so that a probe reads only the descriptor that it is looking for.
class LiveIndex {
 public:
  LiveIndex();

  std::size_t size() const { return size_; }

  // Makes room, so that `count` more insertions do not allocate. Throws std::bad_alloc.
  void reserve(std::size_t count) {
    if (4 * (size_ + count) > slots_.size()) [[unlikely]] {
      grow(size_ + count);
    }
  }

  // Requires: there is room, and the address is not in the index.
  void insert(std::uintptr_t address, BlockIndex index) noexcept;

  // Return kNoBlock if the address is not in the index.
  BlockIndex find(const BlockTable& table, std::uintptr_t address) const noexcept;
  BlockIndex erase(const BlockTable& table, std::uintptr_t address) noexcept;

 private:
  struct Slot {
    std::uint32_t hash = 0;
    BlockIndex index = kNoBlock;  // kNoBlock if the slot is empty
  };

  static std::uint32_t hash(std::uintptr_t address) {
    // Fibonacci hashing spreads the regular strides of block addresses.
    return static_cast<std::uint32_t>((address * 0x9e3779b97f4a7c15) >> 32);
  }
  std::size_t home(std::uint32_t hash) const { return hash >> shift_; }
  std::size_t after(std::size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
  std::size_t slot_of(const BlockTable& table, std::uintptr_t address) const noexcept;
  void place(Slot slot) noexcept;
  void close_gap(std::size_t gap) noexcept;
  void grow(std::size_t count);

  std::vector<Slot> slots_;  // a power of two
  int shift_ = 0;            // 32 - log2 of their number
  std::size_t size_ = 0;
};

}  // namespace cgtree
