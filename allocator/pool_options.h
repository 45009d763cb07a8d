// What a pool is called and how much it may reserve.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cgtree {

struct PoolOptions {
  std::string name = "pool";         // for messages
  std::size_t max_bytes = SIZE_MAX;  // reserved bytes (segments, used or not) at most
};

}  // namespace cgtree
