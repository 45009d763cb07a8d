// ShapeCache: shapes made from sizes, kept so that making one again does not allocate.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "interop/tensor/shape.h"

namespace cgtree {

// A ShapeCache is set-associative: a set has eight entries, and the one filled longest ago is
// replaced. So it is bounded, and a loop over as many sizes as it was made for finds each of them.
// All shapes of a cache have the same strides, or all are row-major.
class ShapeCache {
 public:
  ShapeCache() = default;
  explicit ShapeCache(std::int64_t shapes)
      : sets_(std::bit_ceil(
            static_cast<std::size_t>(std::clamp<std::int64_t>(shapes / (kWays / 2), 1, kMaxSets)))),
        entries_(sets_ * kWays),
        next_(sets_, 0) {}

  // Returns the shape of these dims, made by make() if the cache lacks it. The reference is valid
  // until the next call. Throws what make() throws.
  template <typename Make>
  const Shape& get(std::span<const std::int64_t> dims, Make&& make) {
    const std::size_t set = hash(dims) >> (64 - std::countr_zero(sets_) - 1) >> 1;
    Shape* const entries = entries_.data() + set * kWays;
    for (std::size_t i = 0; i < kWays; ++i) {
      if (std::ranges::equal(entries[i].dims(), dims)) return entries[i];
    }
    Shape& entry = entries[next_[set]];
    entry = make();
    next_[set] = static_cast<std::uint8_t>((next_[set] + 1) % kWays);
    return entry;
  }

 private:
  static constexpr std::size_t kWays = 8;
  static constexpr std::int64_t kMaxSets = 128;

  // Neighbouring sizes land in different sets (Knuth's multiplicative hashing).
  static std::uint64_t hash(std::span<const std::int64_t> dims) noexcept {
    std::uint64_t hash = 0;
    for (const std::int64_t dim : dims)
      hash = (std::rotl(hash, 31) + static_cast<std::uint64_t>(dim)) * 0x9e3779b97f4a7c15ULL;
    return hash;
  }

  std::size_t sets_ = 1;
  std::vector<Shape> entries_ = std::vector<Shape>(kWays);  // set by set
  std::vector<std::uint8_t> next_ = {0};                    // by set: the entry to fill next
};

}  // namespace cgtree
