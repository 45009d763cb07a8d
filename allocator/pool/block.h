// Range, Block, and the sizes of blocks and segments, which are PyTorch's, so that memory plans
// carry over.
//
// Source of the sizes: the defaults of PyTorch 2's CUDA caching allocator (kMinBlockSize,
// kSmallSize, kSmallBuffer, kMinLargeAlloc, kLargeBuffer, kRoundLarge).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cgtree {

// A Range is [address, address + bytes). It is device memory as a number; nothing here dereferences
// it.
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

// A Block is a piece of a segment.
struct Block {
  Range range;
  std::size_t requested = 0;  // the requested bytes; 0 if the block is free

  bool is_live() const { return requested > 0; }
};

// A BlockList holds the blocks of one segment, sorted by address. They tile it, and no two
// neighbours are free; a segment and its live ranges therefore determine the list.
using BlockList = std::vector<Block>;

// Requested sizes are statistics and are not compared.
inline bool same_layout(const Block& left, const Block& right) {
  return left.range == right.range && left.is_live() == right.is_live();
}

// Blocks start at multiples of this and are multiples of it in size.
inline constexpr std::size_t kBlockAlignment = 512;

// A request of at most kSmallRequest gets a small segment, a request of at most kMediumRequest a
// medium one, and a larger request a segment whose size is a multiple of kLargeRounding.
inline constexpr std::size_t kSmallRequest = std::size_t{1} << 20;
inline constexpr std::size_t kSmallSegment = std::size_t{2} << 20;
inline constexpr std::size_t kMediumRequest = std::size_t{10} << 20;
inline constexpr std::size_t kMediumSegment = std::size_t{20} << 20;
inline constexpr std::size_t kLargeRounding = std::size_t{2} << 20;

// The largest request that every rounding below can hold.
inline constexpr std::size_t kLargestRequest = static_cast<std::size_t>(-1) - kLargeRounding;

// Rounds up to a multiple of `multiple`, a power of two. Requires: bytes <= kLargestRequest.
constexpr std::size_t round_up(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) & ~(multiple - 1);
}

// Returns the bytes of the block that serves a request.
constexpr std::size_t block_bytes(std::size_t requested) {
  return round_up(requested, kBlockAlignment);
}

// Returns the bytes of the segment to request when no free block can hold `block`.
constexpr std::size_t segment_bytes(std::size_t block) {
  if (block <= kSmallRequest) return kSmallSegment;
  if (block <= kMediumRequest) return kMediumSegment;
  return round_up(block, kLargeRounding);
}

}  // namespace cgtree
