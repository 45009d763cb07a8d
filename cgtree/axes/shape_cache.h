// ShapeCache: shapes made from sizes, kept, so that making one again takes no memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "interop/tensor/shape.h"

namespace cgtree {

// All shapes of a cache have the same strides, or all are row-major. Eight places per set, the one
// filled longest ago is used again; so it is bounded, and a loop over as many sizes as it was made
// for finds each of them.
class ShapeCache {
 public:
  ShapeCache() = default;
  explicit ShapeCache(std::int64_t shapes)
      : sets_(std::bit_ceil(
            static_cast<std::size_t>(std::clamp<std::int64_t>(shapes / (kWays / 2), 1, kMaxSets)))),
        places_(sets_ * kWays),
        next_(sets_, 0) {}

  // The shape of these dims; `make()` where it is not there. Valid until the next call. Throws what
  // make() throws.
  template <typename Make>
  const Shape& get(std::span<const std::int64_t> dims, Make&& make) {
    const std::size_t set = hash(dims) >> (64 - std::countr_zero(sets_) - 1) >> 1;
    Shape* const places = places_.data() + set * kWays;
    for (std::size_t i = 0; i < kWays; ++i) {
      if (std::ranges::equal(places[i].dims(), dims)) return places[i];
    }
    Shape& place = places[next_[set]];
    place = make();
    next_[set] = static_cast<std::uint8_t>((next_[set] + 1) % kWays);
    return place;
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
  std::vector<Shape> places_ = std::vector<Shape>(kWays);  // set by set
  std::vector<std::uint8_t> next_ = {0};                   // by set: the place to fill next
};

}  // namespace cgtree
