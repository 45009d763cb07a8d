// Who held what when memory ran out.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cgtree {

// All in bytes.
struct PoolUse {
  std::string name;
  std::size_t reserved = 0;            // in segments
  std::size_t live = 0;                // in live blocks
  std::size_t largest_free_block = 0;  // what the pool could still serve

  friend bool operator==(const PoolUse&, const PoolUse&) = default;
};

struct MemoryReport {
  std::size_t requested = 0;           // bytes asked of the pool
  std::size_t largest_free_block = 0;  // of that pool
  std::vector<PoolUse> pools;          // that share the source, the one asked first
  bool capture_open = false;           // then nothing could be given back to the device
};

}  // namespace cgtree
