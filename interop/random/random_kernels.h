// The kernels behind random.h, which nvcc compiles. They are launched on a stream, without checks.
#pragma once

#include <cstdint>

#include "interop/device/stream.h"
#include "interop/random/philox.h"

namespace cgtree {

inline constexpr std::int64_t kFloatsPerPhiloxBlock = 4;
inline constexpr std::int64_t kIntegersPerPhiloxBlock = 2;

// Each function uses ceil(count / numbers per block) blocks of `range`.
void launch_fill_uniform(StreamRef stream, const PhiloxRange& range, float* data,
                         std::int64_t count);
void launch_fill_normal(StreamRef stream, const PhiloxRange& range, float* data, std::int64_t count,
                        float mean, float deviation);
// The numbers are low, low + 1, ..., low + span - 1.
void launch_fill_integers(StreamRef stream, const PhiloxRange& range, std::int64_t* data,
                          std::int64_t count, std::int64_t low, std::uint64_t span);

}  // namespace cgtree
