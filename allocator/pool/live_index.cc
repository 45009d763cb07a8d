// Grows the hash of live blocks.
#include "allocator/pool/live_index.h"

#include <bit>
#include <utility>

namespace cgtree {
namespace {

constexpr std::size_t kFewestHeads = 256;

int shift_for(std::size_t heads) {
  return 65 - std::bit_width(heads);
}

}  // namespace

LiveIndex::LiveIndex(BlockTable& table)
    : table_(table),
      heads_(kFewestHeads),
      shift_(shift_for(kFewestHeads)),
      most_(kFewestHeads / 4) {
}

void LiveIndex::grow(std::size_t count) {
  std::vector<BlockIndex> old(std::bit_ceil(4 * count));
  old.swap(heads_);
  shift_ = shift_for(heads_.size());
  most_ = heads_.size() / 4;
  size_ = 0;
  for (BlockIndex block : old) {
    while (block != kNoBlock)
      insert(std::exchange(block, table_[block].next_of_hash));
  }
}

}  // namespace cgtree
