// BlockMark: the data about a block that threads may read without the lock of its pool.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/pool/block.h"

namespace cgtree {

// A BlockMark is the state of one block in a word. It is empty for an address at which no block of
// a thread cache's size starts, and for blocks that only the pool tracks.
class BlockMark {
 public:
  using Word = std::atomic<std::uint32_t>;
  enum class State : std::uint32_t { kNone, kLive, kCached };

  // Requires: cacheable sizes, see fits().
  static BlockMark live(std::size_t bytes, std::size_t requested) {
    const std::size_t slack = bytes - requested;
    return BlockMark(static_cast<std::uint32_t>(bytes / kBlockAlignment << 12 | slack << 3) |
                     static_cast<std::uint32_t>(State::kLive));
  }
  // Returns true if the word holds the sizes.
  static bool fits(std::size_t bytes, std::size_t requested) {
    return bytes <= kLargest && bytes - requested < kBlockAlignment;
  }
  static constexpr std::size_t kLargest = std::size_t{1} << 20;

  BlockMark() = default;
  explicit BlockMark(std::uint32_t word) : word_(word) {}

  BlockMark cached() const {
    return BlockMark((word_ & ~kState) | static_cast<std::uint32_t>(State::kCached));
  }
  std::uint32_t word() const { return word_; }
  State state() const { return static_cast<State>(word_ & kState); }
  std::size_t bytes() const { return std::size_t{word_ >> 12} * kBlockAlignment; }
  std::size_t requested() const { return bytes() - (word_ >> 3 & (kBlockAlignment - 1)); }

 private:
  static constexpr std::uint32_t kState = 3;

  std::uint32_t word_ = 0;
};

}  // namespace cgtree
