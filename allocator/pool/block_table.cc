// Grows the slab of block descriptors.
#include "allocator/pool/block_table.h"

#include <algorithm>
#include <new>

namespace cgtree {
namespace {

constexpr std::size_t kFirstSlots = 64;

}  // namespace

BlockTable::BlockTable() : nodes_(1) {
  nodes_[kNoBlock].block = {{UINTPTR_MAX, 0}, 1};
}

void BlockTable::grow(std::size_t count) {
  const std::size_t size = nodes_.size();
  const std::size_t added = std::max({count - available_, size, kFirstSlots});
  if (size + added > UINT32_MAX) throw std::bad_alloc();
  nodes_.resize(size + added);
  for (std::size_t slot = size + added; slot-- > size;)
    give_back(static_cast<BlockIndex>(slot));
}

}  // namespace cgtree
