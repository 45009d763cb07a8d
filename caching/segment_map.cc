// Enters segments into the list and the pages, and removes them.
#include "caching/segment_map.h"

#include <iterator>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"

namespace cgtree {

SegmentMap::SegmentMap() : root_(new std::atomic<Entry*>[std::size_t{1} << kRootBits]()) {
}

SegmentMap::~SegmentMap() {
  for (std::size_t i = 0; i < std::size_t{1} << kRootBits; ++i)
    delete[] root_[i].load();
}

MappedPool* SegmentMap::find_listed(std::uintptr_t address) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto after = segments_.upper_bound(address);
  if (after == segments_.begin()) return nullptr;
  const Segment& segment = std::prev(after)->second;
  return address < segment.range.end() ? segment.owner : nullptr;
}

SegmentMap::Entry& SegmentMap::make_entry(std::uintptr_t address) {
  std::atomic<Entry*>& slot = root_[address >> (kPageBits + kLeafBits)];
  Entry* leaf = slot.load();
  if (leaf == nullptr) {
    leaf = new Entry[std::size_t{1} << kLeafBits]();
    slot.store(leaf, std::memory_order_release);
  }
  return leaf[(address >> kPageBits) & ((1u << kLeafBits) - 1)];
}

void SegmentMap::insert(const Range& range, MappedPool& owner) {
  if (range.end() >> (kPageBits + kLeafBits + kRootBits) != 0) {
    throw InvalidArgument(str_format("a segment at {:#x} of {} bytes; addresses must be below 2^48",
                                     range.address, range.bytes));
  }
  const std::lock_guard lock(mutex_);
  const std::uintptr_t first = range.address & ~(kPage - 1);
  for (std::uintptr_t page = first; page < range.end(); page += kPage)
    make_entry(page);
  CGTREE_CHECK(segments_.emplace(range.address, Segment{range, &owner}).second);
  // Nothing allocates from here on.
  for (std::uintptr_t page = first; page < range.end(); page += kPage) {
    Entry& entry = make_entry(page);
    const bool is_whole = range.contains({page, kPage});
    CGTREE_CHECK(entry.load() == 0 || (!is_whole && entry.load() == kShared));
    entry.store(is_whole ? reinterpret_cast<std::uintptr_t>(&owner) : kShared,
                std::memory_order_release);
  }
}

void SegmentMap::erase(const Range& range) noexcept {
  const std::lock_guard lock(mutex_);
  CGTREE_CHECK(segments_.erase(range.address) == 1);
  for (std::uintptr_t page = range.address & ~(kPage - 1); page < range.end(); page += kPage) {
    // If another segment has a part of the page, so has the last segment that begins in or before
    // the page.
    const auto after = segments_.lower_bound(page + kPage);
    const bool is_shared =
        after != segments_.begin() && std::prev(after)->second.range.end() > page;
    make_entry(page).store(is_shared ? kShared : 0, std::memory_order_release);
  }
}

}  // namespace cgtree
