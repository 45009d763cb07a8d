// Enters segments into pages and pieces of pages, and removes them.
#include "caching/segment_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace cgtree {

SegmentMap::SegmentMap() : root_(new std::atomic<Entry*>[std::size_t{1} << kRootBits]()) {
}

SegmentMap::~SegmentMap() {
  for (std::size_t i = 0; i < std::size_t{1} << kRootBits; ++i)
    delete[] root_[i].load();
}

MappedPool* SegmentMap::find_piece(const Entry& entry, std::uintptr_t address) const noexcept {
  const std::lock_guard lock(mutex_);
  const std::uintptr_t value = entry.load();
  if ((value & kWhole) != 0) return reinterpret_cast<MappedPool*>(value & ~kWhole);
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

SegmentMap::Piece* SegmentMap::take_piece(const Range& range, MappedPool& owner,
                                          Piece* next) noexcept {
  Piece* const piece = std::exchange(unused_, unused_->next);
  --unused_count_;
  *piece = {range, &owner, next};
  return piece;
}

void SegmentMap::prepare(const Range& range) {
  if (range.end() >> (kPageBits + kLeafBits + kRootBits) != 0) {
    throw InvalidArgument(
        fmt::format("a segment at {:#x} of {} bytes; addresses must be below 2^48", range.address,
                    range.bytes));
  }
  const std::lock_guard lock(mutex_);
  for (std::uintptr_t page = range.address & ~(kPage - 1); page < range.end(); page += kPage)
    make_entry(page);
  while (unused_count_ < (prepared_ + 1) * kPrepared) {
    Piece& piece = pieces_.emplace_back();
    piece.next = unused_;
    unused_ = &piece;
    ++unused_count_;
  }
  ++prepared_;
}

void SegmentMap::forget_prepared() noexcept {
  const std::lock_guard lock(mutex_);
  --prepared_;
}

void SegmentMap::insert_prepared(const Range& range, MappedPool& owner) noexcept {
  const std::lock_guard lock(mutex_);
  --prepared_;
  if (range.bytes == 0) return;
  for (std::uintptr_t page = range.address & ~(kPage - 1); page < range.end(); page += kPage) {
    Entry& entry = make_entry(page);
    if (range.address <= page && page + kPage <= range.end()) {
      entry.store(reinterpret_cast<std::uintptr_t>(&owner) | kWhole, std::memory_order_release);
      continue;
    }
    CGTREE_CHECK((entry.load() & kWhole) == 0);  // another segment has all of the page
    const std::uintptr_t start = std::max(page, range.address);
    const std::size_t bytes = std::min(page + kPage, range.end()) - start;
    Piece* const piece = take_piece({start, bytes}, owner, reinterpret_cast<Piece*>(entry.load()));
    entry.store(reinterpret_cast<std::uintptr_t>(piece), std::memory_order_release);
  }
}

// What is erased of a page or of a piece is its end.
void SegmentMap::erase(const Range& range) noexcept {
  const std::lock_guard lock(mutex_);
  for (std::uintptr_t page = range.address & ~(kPage - 1); page < range.end(); page += kPage) {
    Entry& entry = make_entry(page);
    if ((entry.load() & kWhole) != 0) {
      auto& owner = *reinterpret_cast<MappedPool*>(entry.load() & ~kWhole);
      Piece* const rest = range.address <= page
                              ? nullptr
                              : take_piece({page, range.address - page}, owner, nullptr);
      entry.store(reinterpret_cast<std::uintptr_t>(rest), std::memory_order_release);
      continue;
    }
    auto* kept = static_cast<Piece*>(nullptr);
    for (auto* piece = reinterpret_cast<Piece*>(entry.load()); piece != nullptr;) {
      Piece* const next = piece->next;
      const bool goes = range.contains(piece->range);
      if (!goes && piece->range.overlaps(range)) {
        piece->range.bytes = range.address - piece->range.address;
      }
      Piece*& list = goes ? unused_ : kept;
      piece->next = std::exchange(list, piece);
      unused_count_ += goes ? 1 : 0;
      piece = next;
    }
    entry.store(reinterpret_cast<std::uintptr_t>(kept), std::memory_order_release);
  }
}

}  // namespace cgtree
