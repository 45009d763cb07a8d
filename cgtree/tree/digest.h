// Digest: a hash of values that must be the same on all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace cgtree {

class Digest {
 public:
  Digest& add(std::uint64_t word) noexcept {
    value_ = (value_ ^ word) * 0x9e3779b97f4a7c15ULL;
    value_ ^= value_ >> 32;
    return *this;
  }
  Digest& add(std::string_view text) noexcept { return add(std::hash<std::string_view>()(text)); }
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0;
};

}  // namespace cgtree
