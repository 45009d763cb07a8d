// Grows the slab of block descriptors.
#include "allocator/pool/block_table.h"

#include <algorithm>
#include <new>

namespace cgtree {
namespace {

constexpr std::size_t kFirstSlots = 64;

// Returns a number without visible order: the finalizer of MurmurHash3.
std::uint32_t mix(std::uint32_t value) {
  value = (value ^ (value >> 16)) * 0x85ebca6b;
  value = (value ^ (value >> 13)) * 0xc2b2ae35;
  return value ^ (value >> 16);
}

}  // namespace

BlockTable::BlockTable() : nodes_(1) {
  nodes_[kNoBlock].block.requested = 1;  // looks live
}

void BlockTable::grow(std::size_t count) {
  const std::size_t size = nodes_.size();
  const std::size_t added = std::max({count - available_, size, kFirstSlots});
  if (size + added > UINT32_MAX) throw std::bad_alloc();
  nodes_.resize(size + added);
  for (std::size_t slot = size + added; slot-- > size;) {
    nodes_[slot].priority = mix(static_cast<std::uint32_t>(slot));
    give_back(static_cast<BlockIndex>(slot));
  }
}

}  // namespace cgtree
