// Range: a half-open range of addresses. Block: a piece of a segment, live or free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cgtree {

// A Range is [address, address + bytes). It is device memory as a number; nothing here dereferences
// it.
struct Range {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;

  std::uintptr_t end() const { return address + bytes; }

  // An empty range overlaps nothing.
  bool overlaps(const Range& other) const {
    return bytes > 0 && other.bytes > 0 && address < other.end() && other.address < end();
  }

  bool contains(const Range& other) const {
    return address <= other.address && other.end() <= end();
  }

  friend bool operator==(const Range&, const Range&) = default;
};

// A Block is a piece of a segment.
struct Block {
  Range range;
  std::size_t requested = 0;  // the bytes that were asked for; 0 if the block is free

  bool is_live() const { return requested > 0; }
};

// A BlockList holds the blocks of one segment, sorted by address. They tile it, and no two
// neighbours are free; so a segment and its live ranges determine the list.
using BlockList = std::vector<Block>;

// Requested sizes are statistics and are not compared.
inline bool same_layout(const BlockList& left, const BlockList& right) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i].range != right[i].range || left[i].is_live() != right[i].is_live()) return false;
  }
  return true;
}

}  // namespace cgtree
