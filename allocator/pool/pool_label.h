// What tells one pool from another in traces and snapshots.
#pragma once

#include <cstdint>

namespace cgtree {

struct PoolLabel {
  std::uint64_t id = 0;  // chosen by who looks at the pools
  int device = 0;        // ordinal, >= 0

  friend bool operator==(const PoolLabel&, const PoolLabel&) = default;
};

}  // namespace cgtree
