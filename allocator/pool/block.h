// A piece of a segment, live or free.
#pragma once

#include <vector>

#include "allocator/pool/range.h"

namespace cgtree {

struct Block {
  Range range;
  std::size_t requested = 0;  // bytes the user asked for; 0: the block is free

  bool is_live() const { return requested > 0; }
};

// The blocks of one segment, sorted by address. They tile it, and no two neighbours are free: so a
// segment and its live ranges determine the list.
using BlockList = std::vector<Block>;

// Requested sizes are statistics and do not count.
inline bool same_layout(const BlockList& left, const BlockList& right) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i].range != right[i].range || left[i].is_live() != right[i].is_live()) return false;
  }
  return true;
}

}  // namespace cgtree
