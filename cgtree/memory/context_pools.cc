// Asks the pools of a context together.
#include "cgtree/memory/context_pools.h"

#include <algorithm>

namespace cgtree {
namespace {

// Recordings know the addresses of free output and scratch memory; eager memory has no such user.
Growth growth_of(Region region, const ContextOptions& options) {
  if (!options.pools_grow_in_place) return Growth::kFast;
  return region == Region::kEager ? Growth::kInPages : Growth::kInPlace;
}

}  // namespace

// What a recording allocates and its warm-up did not, such as copies of inputs, is small: the large
// blocks of the warm-up serve the recording again.
PoolOptions ContextPools::pool_options(Region region, const ContextOptions& options) {
  constexpr const char* kNames[] = {"output", "scratch", "eager"};
  return {.name = kNames[static_cast<int>(region)],
          .growth = growth_of(region, options),
          .has_one_segment = options.group != nullptr,
          .small_apart = region != Region::kEager && !options.pools_grow_in_place};
}

bool ContextPools::owns(const void* address) const {
  return std::any_of(pools_.begin(), pools_.end(),
                     [&](const Pool* pool) { return pool->owns(address); });
}

std::size_t ContextPools::reserved_bytes() const {
  std::size_t bytes = 0;
  for (const Pool* const pool : pools_)
    bytes += pool->statistics().reserved_bytes.current;
  return bytes;
}

void ContextPools::validate() const {
  for (const Pool* const pool : pools_)
    pool->validate();
}

}  // namespace cgtree
