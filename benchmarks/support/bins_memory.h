// BinsMemory: an allocator that does less than a pool, as a lower bound for its pairs.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cgtree::benchmarks {

// A BinsMemory has a list of free blocks for each bin of sizes, and bit masks that find the next
// bin with a block. It takes the block that was freed last, from a bin in which all blocks are
// large enough, and joins neighbours. A descriptor with its neighbours and links is half a cache
// line. It has no lock, no statistics and no order of addresses, and its addresses are the numbers
// of descriptors, so that free() needs no search.
class BinsMemory {
 public:
  BinsMemory() : nodes_(1) {
    heads_.fill(kNone);
    put(add({.units = std::uint64_t{1} << 40}));
  }

  void* allocate(std::size_t bytes) {
    const std::uint64_t units = (bytes + kUnit - 1) / kUnit;
    const std::uint32_t found = take(first_of(bin_of(units) + (units >= kSubBins ? 1 : 0)));
    const std::uint64_t rest = nodes_[found].units - units;
    if (rest > 0) {
      const std::uint32_t made =
          add({.units = rest, .before = found, .after = nodes_[found].after});
      nodes_[nodes_[found].after].before = made;
      nodes_[found].after = made;
      nodes_[found].units = units;
      put(made);
    }
    return reinterpret_cast<void*>(std::uintptr_t{found});
  }

  void free(void* block) {
    auto node = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(block));
    const std::uint32_t before = nodes_[node].before, after = nodes_[node].after;
    if (nodes_[after].is_free) join(node, after);
    if (nodes_[before].is_free) {
      unlink(before);
      absorb(before, node);
      node = before;
    }
    put(node);
  }

 private:
  static constexpr std::uint32_t kNone = 0;  // a descriptor that is never free
  static constexpr std::size_t kUnit = 512;
  static constexpr int kSubBits = 9;
  static constexpr std::uint64_t kSubBins = 1 << kSubBits;
  static constexpr std::uint32_t kWords = 256;

  struct alignas(32) Node {
    std::uint64_t units = 0;
    std::uint32_t before = kNone, after = kNone;   // by address
    std::uint32_t previous = kNone, next = kNone;  // of its list
    bool is_free = false;
  };

  static std::uint32_t bin_of(std::uint64_t units) noexcept {
    const int shift = std::bit_width(units | (kSubBins - 1)) - kSubBits;
    return static_cast<std::uint32_t>((static_cast<std::uint64_t>(shift) << (kSubBits - 1)) +
                                      (units >> shift));
  }
  // Returns the first bin from this one on that has a block. One always has: the end of all memory.
  std::uint32_t first_of(std::uint32_t bin) const noexcept {
    std::uint32_t word = bin / 64;
    std::uint64_t mask = masks_[word] & (~std::uint64_t{0} << bin % 64);
    while (mask == 0)
      mask = masks_[++word];
    return word * 64 + static_cast<std::uint32_t>(std::countr_zero(mask));
  }
  std::uint32_t add(const Node& node) {
    if (unused_.empty()) {
      nodes_.push_back(node);
      return static_cast<std::uint32_t>(nodes_.size() - 1);
    }
    const std::uint32_t made = unused_.back();
    unused_.pop_back();
    nodes_[made] = node;
    return made;
  }
  void put(std::uint32_t node) noexcept {
    const std::uint32_t bin = bin_of(nodes_[node].units);
    nodes_[node].is_free = true;
    nodes_[node].previous = kNone;
    nodes_[node].next = heads_[bin];
    nodes_[heads_[bin]].previous = node;
    heads_[bin] = node;
    masks_[bin / 64] |= std::uint64_t{1} << bin % 64;
  }
  void unlink(std::uint32_t node) noexcept {
    const Node& links = nodes_[node];
    const std::uint32_t bin = bin_of(links.units);
    nodes_[links.next].previous = links.previous;
    (links.previous == kNone ? heads_[bin] : nodes_[links.previous].next) = links.next;
    masks_[bin / 64] &= ~(std::uint64_t{heads_[bin] == kNone} << bin % 64);
    nodes_[node].is_free = false;
  }
  std::uint32_t take(std::uint32_t bin) noexcept {
    const std::uint32_t node = heads_[bin];
    unlink(node);
    return node;
  }
  void absorb(std::uint32_t node, std::uint32_t after) {
    nodes_[node].units += nodes_[after].units;
    nodes_[node].after = nodes_[after].after;
    nodes_[nodes_[after].after].before = node;
    unused_.push_back(after);
  }
  void join(std::uint32_t node, std::uint32_t after) {
    unlink(after);
    absorb(node, after);
  }

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> unused_;
  std::array<std::uint64_t, kWords> masks_{};
  std::array<std::uint32_t, kWords * 64> heads_;
};

}  // namespace cgtree::benchmarks
