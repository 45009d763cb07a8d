// What a restore changed.
#pragma once

#include <vector>

#include "allocator/pool/range.h"

namespace cgtree {

// Blocks with their rounded sizes, sorted by address. A range that is live before and after is in
// neither list, even when it was freed and allocated again in between.
struct PoolDelta {
  std::vector<Range> became_live;
  std::vector<Range> died;

  friend bool operator==(const PoolDelta&, const PoolDelta&) = default;
};

}  // namespace cgtree
