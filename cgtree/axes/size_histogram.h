// SizeHistogram: how often an axis had which size; counting a size again takes no memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cgtree/suggest_buckets.h"

namespace cgtree {

// Open addressing, never more than half full.
class SizeHistogram {
 public:
  // Different sizes that are told apart; calls with more are counted by uncounted().
  static constexpr std::size_t kMaxSizes = 4096;

  // Never fails: where there is no memory, the size is not counted.
  void add(std::int64_t size) noexcept {
    std::size_t at = find(places_, size);
    if (places_[at].count == 0) {
      if (!make_room()) {
        ++uncounted_;
        return;
      }
      at = find(places_, size);
      places_[at].size = size;
      ++sizes_;
    }
    ++places_[at].count;
  }

  // Ascending.
  std::vector<SizeCount> counts() const {
    std::vector<SizeCount> counts;
    std::copy_if(places_.begin(), places_.end(), std::back_inserter(counts),
                 [](const SizeCount& place) { return place.count > 0; });
    std::sort(counts.begin(), counts.end(),
              [](const SizeCount& a, const SizeCount& b) { return a.size < b.size; });
    return counts;
  }
  std::uint64_t uncounted() const noexcept { return uncounted_; }

 private:
  // Where the size is, or would be.
  static std::size_t find(const std::vector<SizeCount>& places, std::int64_t size) noexcept {
    std::size_t at = static_cast<std::uint64_t>(size) * 0x9e3779b97f4a7c15ULL >> 32;
    for (at &= places.size() - 1; places[at].count > 0 && places[at].size != size;)
      at = (at + 1) & (places.size() - 1);
    return at;
  }
  bool make_room() noexcept {
    if (2 * (sizes_ + 1) <= places_.size()) return true;
    if (sizes_ >= kMaxSizes) return false;
    try {
      std::vector<SizeCount> more(2 * places_.size());
      for (const SizeCount& place : places_) {
        if (place.count > 0) more[find(more, place.size)] = place;
      }
      places_.swap(more);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }

  std::vector<SizeCount> places_ = std::vector<SizeCount>(16);  // a power of two of them
  std::size_t sizes_ = 0;
  std::uint64_t uncounted_ = 0;
};

}  // namespace cgtree
