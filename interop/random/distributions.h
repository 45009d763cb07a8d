// Distributions: what random words become; usable in kernels of your own.
#pragma once

#include <cmath>
#include <cstdint>

#include "interop/device/host_device.h"
#include "interop/random/philox.h"

namespace cgtree {

// [0, 1) in steps of 2^-24; never 1.
CGTREE_HOST_DEVICE inline float to_uniform(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

struct NormalPair {
  float values[2];
};

// Two independent normal values of mean 0 and deviation 1, at most 6.7 in size (Box and Muller
// 1958). The device's own logf, sinf and cosf: two kinds of device may differ in the last bits.
CGTREE_HOST_DEVICE inline NormalPair to_normals(std::uint32_t word0, std::uint32_t word1) {
  // (0, 1], so that the logarithm is finite.
  const float radius_word = (static_cast<float>(word0) + 1.0f) * 0x1p-32f;
  const float radius = sqrtf(-2.0f * logf(radius_word));
  const float angle = 6.28318530718f * to_uniform(word1);
  return {{radius * cosf(angle), radius * sinf(angle)}};
}

// [0, range); of 2^64 values each is met within one time more often than another. Requires range >
// 0.
CGTREE_HOST_DEVICE inline std::uint64_t to_integer(std::uint32_t low, std::uint32_t high,
                                                   std::uint64_t range) {
  const std::uint64_t bits = static_cast<std::uint64_t>(high) << 32 | low;
#ifdef __CUDA_ARCH__
  return __umul64hi(bits, range);
#else
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(bits) * range >> 64);
#endif
}

}  // namespace cgtree
