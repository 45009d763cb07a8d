// Footprint: the pool addresses that a recording writes, which must be free when it is replayed.
#pragma once

#include <algorithm>
#include <vector>

#include "allocator/pool/block.h"

namespace cgtree {

// A Footprint is a set of ranges: sorted, disjoint and not touching.
class Footprint {
 public:
  Footprint() = default;
  explicit Footprint(std::vector<Range> ranges) : ranges_(std::move(ranges)) {
    std::sort(ranges_.begin(), ranges_.end(),
              [](const Range& a, const Range& b) { return a.address < b.address; });
    std::size_t kept = 0;
    for (const Range& range : ranges_) {
      if (kept > 0 && range.address <= ranges_[kept - 1].end()) {
        Range& last = ranges_[kept - 1];
        last.bytes = std::max(last.end(), range.end()) - last.address;
      } else {
        ranges_[kept++] = range;
      }
    }
    ranges_.resize(kept);
  }

  bool overlaps(const Range& range) const {
    const auto after = std::upper_bound(
        ranges_.begin(), ranges_.end(), range.address,
        [](std::uintptr_t address, const Range& candidate) { return address < candidate.end(); });
    return after != ranges_.end() && after->overlaps(range);
  }

  const std::vector<Range>& ranges() const noexcept { return ranges_; }
  std::size_t bytes() const noexcept {
    std::size_t sum = 0;
    for (const Range& range : ranges_)
      sum += range.bytes;
    return sum;
  }

 private:
  std::vector<Range> ranges_;
};

}  // namespace cgtree
