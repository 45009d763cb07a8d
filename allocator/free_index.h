// The free blocks of one pool, ordered for best fit.
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "allocator/range.h"

namespace cgtree {

// Ordered by (bytes, address), so that equal requests on equal layouts find equal blocks.
class FreeIndex {
 public:
  // The smallest block of at least `bytes`; of several the lowest.
  std::optional<Range> best_fit(std::size_t bytes) const;

  // Bytes of the largest free block, 0 without one.
  std::size_t largest() const { return entries_.empty() ? 0 : entries_.rbegin()->first; }

  std::size_t size() const { return entries_.size(); }
  bool contains(const Range& block) const { return entries_.contains(key(block)); }

  void insert(const Range& block);
  void erase(const Range& block) noexcept;

  // Puts `now` in the place of `before`, without taking memory. An empty `now` only erases.
  void replace(const Range& before, const Range& now) noexcept;

  // Moves all of `other` here, without taking memory.
  void absorb(FreeIndex& other) noexcept { entries_.merge(other.entries_); }

 private:
  using Key = std::pair<std::size_t, std::uintptr_t>;
  static Key key(const Range& block) { return {block.bytes, block.address}; }

  std::set<Key> entries_;
};

}  // namespace cgtree
