// SizeHistogram: how often an axis had which size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cgtree/suggest_buckets.h"

namespace cgtree {

// A SizeHistogram is a hash table with open addressing that is never more than half full. Counting
// a size again does not allocate.
class SizeHistogram {
 public:
  // The number of sizes that are told apart; calls with others are counted by uncounted().
  static constexpr std::size_t kMaxSizes = 4096;

  // Never fails: if memory is short, the size is not counted.
  void add(std::int64_t size) noexcept {
    std::size_t at = find(entries_, size);
    if (entries_[at].count == 0) {
      if (!make_room()) {
        ++uncounted_;
        return;
      }
      at = find(entries_, size);
      entries_[at].size = size;
      ++sizes_;
    }
    ++entries_[at].count;
  }

  // Returns the sizes in ascending order.
  std::vector<SizeCount> counts() const {
    std::vector<SizeCount> counts;
    std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(counts),
                 [](const SizeCount& entry) { return entry.count > 0; });
    std::sort(counts.begin(), counts.end(),
              [](const SizeCount& a, const SizeCount& b) { return a.size < b.size; });
    return counts;
  }
  std::uint64_t uncounted() const noexcept { return uncounted_; }

 private:
  // Returns the index where the size is, or would be.
  static std::size_t find(const std::vector<SizeCount>& entries, std::int64_t size) noexcept {
    std::size_t at = static_cast<std::uint64_t>(size) * 0x9e3779b97f4a7c15ULL >> 32;
    for (at &= entries.size() - 1; entries[at].count > 0 && entries[at].size != size;)
      at = (at + 1) & (entries.size() - 1);
    return at;
  }
  bool make_room() noexcept {
    if (2 * (sizes_ + 1) <= entries_.size()) return true;
    if (sizes_ >= kMaxSizes) return false;
    try {
      std::vector<SizeCount> more(2 * entries_.size());
      for (const SizeCount& entry : entries_) {
        if (entry.count > 0) more[find(more, entry.size)] = entry;
      }
      entries_.swap(more);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }

  std::vector<SizeCount> entries_ = std::vector<SizeCount>(16);  // a power of two of them
  std::size_t sizes_ = 0;
  std::uint64_t uncounted_ = 0;
};

}  // namespace cgtree
