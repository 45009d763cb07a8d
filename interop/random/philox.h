// philox: random words that are computed from a seed and a number alone, the same on every device;
// and their conversion to distributions.
//
// Source: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1,
// 2, 3" (SC 2011). Kernels of your own may use this header; it needs nothing else.
#pragma once

#include <cmath>
#include <cstdint>

#include "interop/device/kernel_function.h"

namespace cgtree {

// A PhiloxBlock is the result of one evaluation. The sequence of a seed is 2^64 such blocks.
struct PhiloxBlock {
  std::uint32_t words[4];
};

// A PhiloxPosition is the number of the next block of a sequence. The root node of a recording
// writes it to the device.
struct PhiloxPosition {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  // blocks used so far
  bool operator==(const PhiloxPosition&) const = default;
};

// Computes the ten rounds for any counter and key.
CGTREE_HOST_DEVICE constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::uint32_t key0,
                                                    std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter.words[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter.words[2];
    counter = {{static_cast<std::uint32_t>(product1 >> 32) ^ counter.words[1] ^ key0,
                static_cast<std::uint32_t>(product1),
                static_cast<std::uint32_t>(product0 >> 32) ^ counter.words[3] ^ key1,
                static_cast<std::uint32_t>(product0)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// Returns block `offset + index` of the seed's sequence; the sum is modulo 2^64.
CGTREE_HOST_DEVICE constexpr PhiloxBlock philox(std::uint64_t seed, std::uint64_t offset,
                                                std::uint64_t index) {
  const std::uint64_t number = offset + index;
  return philox4x32(
      {{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 0, 0}},
      static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
}

// A PhiloxRange is a range of blocks reserved by Generator::reserve(); a kernel argument.
//
// In a call that runs eagerly it contains the position. While a step function is recorded, the
// position is not known yet: `origin` is the address in device memory to which each replay writes
// it before any kernel runs.
class PhiloxRange {
 public:
  PhiloxRange() = default;
  // Takes the position of the first block, or, for recorded work, its address and the number of
  // blocks after it.
  explicit PhiloxRange(const PhiloxPosition& first) : first_(first) {}
  PhiloxRange(const PhiloxPosition* origin, std::uint64_t blocks_after_it)
      : origin_(origin), first_{0, blocks_after_it} {}

  // The device memory to which each replay writes the position; null in a call that runs eagerly.
  const PhiloxPosition* origin() const { return origin_; }

  // Requires: index < the number of blocks reserved. Recorded work may call it on the device only.
  CGTREE_HOST_DEVICE PhiloxBlock block(std::uint64_t index) const {
    if (origin_ == nullptr) return philox(first_.seed, first_.offset, index);
    return philox(origin_->seed, origin_->offset + first_.offset, index);
  }

 private:
  const PhiloxPosition* origin_ = nullptr;
  PhiloxPosition first_;
};

// Returns a value in [0, 1), in steps of 2^-24.
CGTREE_HOST_DEVICE inline float to_uniform(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// Two values from one draw of two words.
struct NormalPair {
  float values[2];
};

// Returns two independent normal values of mean 0 and deviation 1, at most 6.7 in absolute value
// (Box and Muller 1958). It uses the device's logf, sinf and cosf, so kinds of device may differ in
// the last bits.
CGTREE_HOST_DEVICE inline NormalPair to_normals(std::uint32_t word0, std::uint32_t word1) {
  // (0, 1], so that the logarithm is finite.
  const float radius_word = (static_cast<float>(word0) + 1.0f) * 0x1p-32f;
  const float radius = sqrtf(-2.0f * logf(radius_word));
  const float angle = 6.28318530718f * to_uniform(word1);
  return {{radius * cosf(angle), radius * sinf(angle)}};
}

// Returns a value in [0, range). Over all 2^64 inputs the frequencies of two values differ by at
// most one. Requires: range > 0.
CGTREE_HOST_DEVICE inline std::uint64_t to_integer(std::uint32_t low, std::uint32_t high,
                                                   std::uint64_t range) {
  const std::uint64_t bits = static_cast<std::uint64_t>(high) << 32 | low;
#ifdef __CUDA_ARCH__
  return __umul64hi(bits, range);
#else
  __extension__ using Product = unsigned __int128;  // of 128 bits, which ISO C++ lacks
  return static_cast<std::uint64_t>(static_cast<Product>(bits) * range >> 64);
#endif
}

}  // namespace cgtree
