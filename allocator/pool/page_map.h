// PageMap: the pages of a segment that have memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "allocator/pool/block.h"

namespace cgtree {

// A PageMap records which pages of a segment are mapped. Ranges here are offsets in the segment.
// The last page may be partial.
class PageMap {
 public:
  static constexpr std::size_t kPage = kLargeRounding;

  bool is_empty() const noexcept { return mapped_.empty(); }
  std::size_t unmapped_bytes() const noexcept { return unmapped_ * kPage; }

  // Makes room for a segment of `bytes`, so that set_bytes() does not allocate.
  void reserve(std::size_t bytes) { mapped_.reserve(pages(bytes)); }
  // Pages that the segment gains are mapped.
  void set_bytes(std::size_t bytes) { mapped_.resize(pages(bytes), true); }

  // Returns the first run of pages that overlap `range` and are (not) mapped.
  std::optional<Range> find(const Range& range, bool is_mapped) const noexcept {
    const std::size_t end = std::min(pages(range.end()), mapped_.size());
    std::size_t first = range.address / kPage;
    while (first < end && mapped_[first] != is_mapped)
      ++first;
    if (first >= end) return std::nullopt;
    std::size_t last = first;
    while (last < end && mapped_[last] == is_mapped)
      ++last;
    return Range{first * kPage, (last - first) * kPage};
  }

  // Returns the bytes of the unmapped pages that overlap `range`.
  std::size_t missing(const Range& range) const noexcept {
    if (unmapped_ == 0) return 0;
    const std::size_t end = std::min(pages(range.end()), mapped_.size());
    std::size_t count = 0;
    for (std::size_t page = range.address / kPage; page < end; ++page)
      count += mapped_[page] ? 0 : 1;
    return count * kPage;
  }

  // Requires: `run` is whole pages, all in the opposite state.
  void set(const Range& run, bool is_mapped) noexcept {
    const std::size_t count = run.bytes / kPage;
    std::fill_n(mapped_.begin() + static_cast<std::ptrdiff_t>(run.address / kPage), count,
                is_mapped);
    is_mapped ? unmapped_ -= count : unmapped_ += count;
  }

  // Returns the whole pages inside `range`.
  static Range inside(const Range& range) noexcept {
    const std::size_t begin = round_up(range.address, kPage);
    const std::size_t end = range.end() - range.end() % kPage;
    return {begin, end > begin ? end - begin : 0};
  }

 private:
  static std::size_t pages(std::size_t bytes) noexcept { return round_up(bytes, kPage) / kPage; }

  std::vector<bool> mapped_;  // empty for a segment without pages
  std::size_t unmapped_ = 0;
};

}  // namespace cgtree
