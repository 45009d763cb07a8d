// A half-open range of addresses.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cgtree {

// [address, address + bytes). Device memory as a number: nothing here dereferences it.
struct Range {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;

  std::uintptr_t end() const { return address + bytes; }

  // An empty range overlaps nothing.
  bool overlaps(const Range& other) const {
    return bytes > 0 && other.bytes > 0 && address < other.end() && other.address < end();
  }

  bool contains(const Range& other) const {
    return address <= other.address && other.end() <= end();
  }

  friend bool operator==(const Range&, const Range&) = default;
};

}  // namespace cgtree
