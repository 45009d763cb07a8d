// The free blocks of one pool in an ordered set.
#include "allocator/free_index.h"

#include "base/check.h"

namespace cgtree {

std::optional<Range> FreeIndex::best_fit(std::size_t bytes) const {
  const auto entry = entries_.lower_bound(Key{bytes, 0});
  if (entry == entries_.end()) return std::nullopt;
  return Range{entry->second, entry->first};
}

void FreeIndex::insert(const Range& block) {
  const bool inserted = entries_.insert(key(block)).second;
  CGTREE_CHECK(inserted);
}

void FreeIndex::erase(const Range& block) noexcept {
  const std::size_t erased = entries_.erase(key(block));
  CGTREE_CHECK(erased == 1);
}

void FreeIndex::replace(const Range& before, const Range& now) noexcept {
  auto node = entries_.extract(key(before));
  CGTREE_CHECK(!node.empty());
  if (now.bytes == 0) return;
  node.value() = key(now);
  const bool inserted = entries_.insert(std::move(node)).inserted;
  CGTREE_CHECK(inserted);
}

}  // namespace cgtree
