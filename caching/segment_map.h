// SegmentMap: finds the pool of an address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "allocator/pool/block.h"
#include "base/mutex.h"

namespace cgtree {

class MappedPool;

// A SegmentMap lists segments by address, and has a tree of two levels over pages of 2 MiB. A page
// that one segment covers refers to its pool; a shared page refers to the list.
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
    const std::uintptr_t page = address >> kPageBits;
    if (page >> (kLeafBits + kRootBits) != 0) return nullptr;
    const Entry* const leaf = root_[page >> kLeafBits].load(std::memory_order_acquire);
    if (leaf == nullptr) return nullptr;
    const std::uintptr_t value =
        leaf[page & ((1u << kLeafBits) - 1)].load(std::memory_order_acquire);
    return value != kShared ? reinterpret_cast<MappedPool*>(value) : find_listed(address);
  }

  // Adds a segment. Throws InvalidArgument beyond 2^48 and std::bad_alloc; nothing has changed
  // then.
  void insert(const Range& range, MappedPool& owner);
  // Removes a segment.
  void erase(const Range& range) noexcept;

 private:
  static constexpr int kPageBits = 21;
  static constexpr int kLeafBits = 13;
  static constexpr int kRootBits = 14;
  static constexpr std::uintptr_t kPage = std::uintptr_t{1} << kPageBits;
  static constexpr std::uintptr_t kShared = 1;

  using Entry = std::atomic<std::uintptr_t>;  // 0, a MappedPool*, or kShared
  struct Segment {
    Range range;
    MappedPool* owner;
  };

  MappedPool* find_listed(std::uintptr_t address) const noexcept;
  Entry& make_entry(std::uintptr_t address);

  const std::unique_ptr<std::atomic<Entry*>[]> root_;
  mutable Mutex<LockRank::kLeaf> mutex_;        // held by writers; guards the list
  std::map<std::uintptr_t, Segment> segments_;  // by address
};

}  // namespace cgtree
