// SegmentMap: which pool an address belongs to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "allocator/pool/block.h"
#include "base/mutex.h"

namespace cgtree {

class MappedPool;

// A SegmentMap is a tree of two levels over pages of 2 MiB. A page that one segment covers names
// its pool; a page that several segments share has a list of pieces.
//
// Thread safety: all functions may be called from any thread. Pages of one pool are read without a
// lock, shared pages with the writers' lock.
class SegmentMap {
 public:
  SegmentMap();
  ~SegmentMap();
  SegmentMap(const SegmentMap&) = delete;
  SegmentMap& operator=(const SegmentMap&) = delete;

  // Returns null if no segment has the address.
  MappedPool* find(std::uintptr_t address) const noexcept {
    const Entry* const entry = entry_of(address);
    if (entry == nullptr) return nullptr;
    const std::uintptr_t value = entry->load(std::memory_order_acquire);
    if ((value & kWhole) != 0) return reinterpret_cast<MappedPool*>(value & ~kWhole);
    return value == 0 ? nullptr : find_piece(*entry, address);
  }

  // Makes room for what one erase() of the end of a segment and one insert_prepared() inside the
  // range may need. Throws InvalidArgument beyond 2^48 and std::bad_alloc; nothing has changed
  // then. insert_prepared() or forget_prepared() must follow.
  void prepare(const Range& range);
  void insert_prepared(const Range& range, MappedPool& owner) noexcept;
  void forget_prepared() noexcept;

  // Adds a segment, or the part by which one has grown. Throws as prepare().
  void insert(const Range& range, MappedPool& owner) {
    prepare(range);
    insert_prepared(range, owner);
  }
  // Removes a segment or, after prepare(), the end of one.
  void erase(const Range& range) noexcept;

 private:
  static constexpr int kPageBits = 21;
  static constexpr int kLeafBits = 13;
  static constexpr int kRootBits = 14;
  static constexpr std::uintptr_t kPage = std::uintptr_t{1} << kPageBits;
  static constexpr std::uintptr_t kWhole = 1;
  // An erase() of an end cuts one page, and only the first and the last page of an insert() may be
  // shared.
  static constexpr std::size_t kPrepared = 3;

  using Entry = std::atomic<std::uintptr_t>;  // 0, a MappedPool* | kWhole, or a Piece*
  struct Piece {
    Range range;
    MappedPool* owner = nullptr;
    Piece* next = nullptr;
  };

  const Entry* entry_of(std::uintptr_t address) const noexcept {
    const std::uintptr_t page = address >> kPageBits;
    if (page >> (kLeafBits + kRootBits) != 0) return nullptr;
    const Entry* const leaf = root_[page >> kLeafBits].load(std::memory_order_acquire);
    return leaf == nullptr ? nullptr : &leaf[page & ((1u << kLeafBits) - 1)];
  }
  MappedPool* find_piece(const Entry& entry, std::uintptr_t address) const noexcept;
  Entry& make_entry(std::uintptr_t address);
  Piece* take_piece(const Range& range, MappedPool& owner, Piece* next) noexcept;

  const std::unique_ptr<std::atomic<Entry*>[]> root_;
  mutable Mutex<LockRank::kSegmentMap> mutex_;  // held by writers; guards the pieces
  std::deque<Piece> pieces_;                    // used and unused
  Piece* unused_ = nullptr;
  std::size_t unused_count_ = 0;
  std::size_t prepared_ = 0;  // calls of prepare() whose room is not used yet
};

}  // namespace cgtree
