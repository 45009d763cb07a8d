// Enters segments into pages and pieces of pages, and removes them.
#include "allocator/caching/segment_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace cgtree {

SegmentMap::SegmentMap() : root_(new std::atomic<Entry*>[std::size_t{1} << kRootBits]()) {
}

SegmentMap::~SegmentMap() {
  for (std::size_t i = 0; i < std::size_t{1} << kRootBits; ++i)
    delete[] root_[i].load();
}

StreamPool* SegmentMap::find_piece(const Entry& entry, std::uintptr_t address) const noexcept {
  const std::lock_guard lock(mutex_);
  const std::uintptr_t value = entry.load();
  if ((value & kWhole) != 0) return reinterpret_cast<StreamPool*>(value & ~kWhole);
  for (const auto* piece = reinterpret_cast<const Piece*>(value); piece != nullptr;
       piece = piece->next) {
    if (piece->range.contains({address, 1})) return piece->owner;
  }
  return nullptr;
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

void SegmentMap::make_pieces(std::size_t count) {
  while (unused_count_ < count) {
    Piece& piece = pieces_.emplace_back();
    piece.next = unused_;
    unused_ = &piece;
    ++unused_count_;
  }
}

SegmentMap::Piece* SegmentMap::take_piece(const Range& range, StreamPool& owner,
                                          Piece* next) noexcept {
  Piece* const piece = std::exchange(unused_, unused_->next);
  --unused_count_;
  *piece = {range, &owner, next};
  return piece;
}

void SegmentMap::insert(const Range& range, StreamPool& owner) {
  if (range.end() >> (kPageBits + kLeafBits + kRootBits) != 0) {
    throw InvalidArgument(
        fmt::format("a segment at {:#x} of {} bytes; addresses must be below 2^48", range.address,
                    range.bytes));
  }
  const std::lock_guard lock(mutex_);
  for (std::uintptr_t page = range.address & ~(kPage - 1); page < range.end(); page += kPage)
    make_entry(page);
  make_pieces(4);  // only the first and the last page may be shared
  for (std::uintptr_t page = range.address & ~(kPage - 1); page < range.end(); page += kPage) {
    Entry& entry = make_entry(page);
    if (range.address <= page && page + kPage <= range.end()) {
      entry.store(reinterpret_cast<std::uintptr_t>(&owner) | kWhole, std::memory_order_release);
      continue;
    }
    auto* rest = reinterpret_cast<Piece*>(entry.load());
    if ((entry.load() & kWhole) != 0) {
      auto* const other = reinterpret_cast<StreamPool*>(entry.load() & ~kWhole);
      rest = take_piece({page, kPage}, *other, nullptr);
    }
    const std::uintptr_t start = std::max(page, range.address);
    const std::size_t bytes = std::min(page + kPage, range.end()) - start;
    Piece* const piece = take_piece({start, bytes}, owner, rest);
    entry.store(reinterpret_cast<std::uintptr_t>(piece), std::memory_order_release);
  }
}

void SegmentMap::erase(const Range& range, StreamPool& owner) noexcept {
  const std::lock_guard lock(mutex_);
  for (std::uintptr_t page = range.address & ~(kPage - 1); page < range.end(); page += kPage) {
    Entry& entry = const_cast<Entry&>(*entry_of(page));
    if ((entry.load() & kWhole) != 0) {
      // A segment that shrinks inside a page keeps that page.
      if (range.address <= page) entry.store(0, std::memory_order_release);
      continue;
    }
    auto* kept = static_cast<Piece*>(nullptr);
    for (auto* piece = reinterpret_cast<Piece*>(entry.load()); piece != nullptr;) {
      Piece* const next = piece->next;
      const bool goes = piece->owner == &owner && range.contains(piece->range);
      Piece*& list = goes ? unused_ : kept;
      piece->next = std::exchange(list, piece);
      unused_count_ += goes ? 1 : 0;
      piece = next;
    }
    entry.store(reinterpret_cast<std::uintptr_t>(kept), std::memory_order_release);
  }
}

}  // namespace cgtree
