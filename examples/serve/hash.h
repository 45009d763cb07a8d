// mix(): a hash of one number. All randomness of this example comes from it, on every device.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define SERVE_HOST_DEVICE __host__ __device__
#else
#define SERVE_HOST_DEVICE
#endif

namespace cgtree::serve {

// Source: the output function of SplitMix64 (Steele, Lea and Flood, 2014).
SERVE_HOST_DEVICE constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Returns a number in [0, 1), a multiple of 2^-24.
SERVE_HOST_DEVICE constexpr float unit_interval(std::uint64_t hash) {
  return static_cast<float>(hash >> 40) * (1.0f / 16777216.0f);
}

}  // namespace cgtree::serve
