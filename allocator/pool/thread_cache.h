// ThreadCache: the freed blocks of one pool that one thread keeps, and the sizes it asks for.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "allocator/pool/block_marks.h"
#include "allocator/pool/statistics.h"
#include "base/spinning_mutex.h"

namespace cgtree {

class ThreadCaches;

// A CachedBlock is live in the layout of its pool, and its word says that it is cached.
struct CachedBlock {
  void* address = nullptr;
  BlockMarks::Word* word = nullptr;
};

// A SizeDemand says which sizes a thread asks for again and again: only their blocks are worth
// keeping. Each of a hash's slots counts for one size, and another one takes it over when the count
// has fallen to 0. A thread that is rarely served with what it has kept keeps nothing for a while.
//
// Its thread alone uses it, so that requests that are not in demand take no lock of the cache.
class SizeDemand {
 public:
  static constexpr std::size_t kSlots = 128;

  static std::size_t slot_of(std::size_t bytes) {
    return static_cast<std::uint16_t>(unit_of(bytes) * 40503u) >> 9;
  }

  // Notes a request. Returns true if the size is in demand.
  bool ask(std::size_t bytes) {
    if (pause_ > 0) {
      --pause_;
      return false;
    }
    const bool is = bytes <= BlockMark::kLargest && repeats(bytes);
    if (!is) note_miss();
    return is;
  }
  // Note whether a request was served by the cache.
  void note_hit() {
    if (balance_ < kMostBalance) balance_ += kHit;
  }
  void note_miss() {
    balance_ -= kMiss;
    if (balance_ < 0) [[unlikely]] {
      balance_ = kMostBalance;
      pause_ = kPause;
    }
  }
  bool is_in_demand(std::size_t bytes) const {
    const Slot& slot = slots_[slot_of(bytes)];
    return pause_ == 0 && slot.unit == unit_of(bytes) && slot.count >= kRepeats;
  }
  // Blocks of the size were kept in vain: from now on it has to be asked for again.
  void forget(std::size_t bytes) {
    Slot& slot = slots_[slot_of(bytes)];
    if (slot.unit == unit_of(bytes)) slot.count = 0;
  }

 private:
  static constexpr std::uint16_t kRepeats = 2;  // requests that make a demand
  static constexpr std::uint16_t kMost = 4;
  // With less than three hits for five misses, what is kept in vain costs more than is saved.
  static constexpr int kHit = 5;
  static constexpr int kMiss = 3;
  static constexpr int kMostBalance = 1024 * kMiss;
  static constexpr std::uint32_t kPause = 32 * 1024;  // requests
  static std::uint16_t unit_of(std::size_t bytes) {
    return static_cast<std::uint16_t>(bytes / kBlockAlignment);
  }
  struct Slot {
    std::uint16_t unit = 0;
    std::uint16_t count = 0;
  };
  bool repeats(std::size_t bytes) {
    Slot& slot = slots_[slot_of(bytes)];
    if (slot.unit == unit_of(bytes)) {
      if (slot.count < kMost) ++slot.count;
    } else if (slot.count > 0) {
      --slot.count;
      return false;
    } else {
      slot = {unit_of(bytes), 1};
    }
    return slot.count >= kRepeats;
  }

  int balance_ = kMostBalance;
  std::uint32_t pause_ = 0;  // requests left of it
  std::array<Slot, kSlots> slots_;
};

// A ThreadCache has the blocks that one thread has freed, in a list for each slot of SizeDemand.
// The blocks of a list have one size.
//
// Its lock is the thread's nearly always; others take it to count the blocks or to take them back.
class ThreadCache {
 public:
  static constexpr std::uint32_t kMostBlocks = 64;
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;

  explicit ThreadCache(ThreadCaches& caches);

  alignas(64) SpinningMutex mutex;  // guards all below but the demand, and the calls
  std::atomic<ThreadCaches*>
      owner;               // null once its pool is closed; read without the lock as a hint
  bool is_open = false;    // else nothing is cached
  bool has_ended = false;  // the thread
  Flow flow;

  bool is_empty() const { return bytes_ == 0; }
  std::size_t bytes() const { return bytes_; }

  // Returns false if pop() would find nothing. Only the thread itself may ask without the lock:
  // others do not push.
  bool may_have(std::size_t bytes) const {
    return lists_[SizeDemand::slot_of(bytes)].first.load(std::memory_order_relaxed) != kNone;
  }
  // Removes and returns the block of exactly `bytes` that was pushed last; it has no word if there
  // is none.
  CachedBlock pop(std::size_t bytes) noexcept {
    List& list = lists_[SizeDemand::slot_of(bytes)];
    return list.is_empty() || list.bytes != bytes ? CachedBlock() : pop(list);
  }
  bool has_room(std::size_t bytes) const {
    const List& list = lists_[SizeDemand::slot_of(bytes)];
    return free_first_ != kNone && bytes_ + bytes <= kMostBytes &&
           (list.is_empty() || list.bytes == bytes);
  }
  // Requires: there is room.
  void push(const CachedBlock& block, std::size_t bytes) noexcept {
    List& list = lists_[SizeDemand::slot_of(bytes)];
    const std::uint8_t place = free_first_;
    free_first_ = places_[place].next;
    places_[place] = {block, list.first.load(std::memory_order_relaxed)};
    list.bytes = static_cast<std::uint32_t>(bytes);
    list.first.store(place, std::memory_order_relaxed);
    bytes_ += bytes;
  }

  // Blocks that have been removed.
  struct Popped {
    std::array<CachedBlock, kMostBlocks> blocks;
    std::uint32_t count = 0;
    std::span<const CachedBlock> all() const { return std::span(blocks).first(count); }
  };
  // Makes room, with as few locks of the pool as that can be: of a full cache a quarter goes, of
  // each list in turn. Sizes that were kept in vain are no more in demand.
  void make_room(std::size_t bytes, Popped& popped) noexcept;
  void pop_all(Popped& popped) noexcept;

  SizeDemand demand;  // of the thread alone

  // Calls `visit(block, bytes)` for each.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const List& list : lists_)
      for (std::uint8_t place = list.first.load(std::memory_order_relaxed); place != kNone;
           place = places_[place].next)
        visit(places_[place].block, std::size_t{list.bytes});
  }

 private:
  static constexpr std::uint8_t kNone = 0xff;
  struct List {
    std::uint32_t bytes = 0;  // of each block
    std::atomic<std::uint8_t> first = kNone;
    bool is_empty() const { return first.load(std::memory_order_relaxed) == kNone; }
  };
  struct Place {
    CachedBlock block;
    std::uint8_t next = kNone;
  };

  CachedBlock pop(List& list) noexcept {
    const std::uint8_t place = list.first.load(std::memory_order_relaxed);
    list.first.store(std::exchange(places_[place].next, free_first_), std::memory_order_relaxed);
    free_first_ = place;
    bytes_ -= list.bytes;
    return places_[place].block;
  }
  std::size_t pop_in_turn(Popped& popped) noexcept;

  std::uint8_t free_first_ = 0;  // of the places without a block; kNone if there is none
  std::size_t bytes_ = 0;
  std::size_t turn_ = 0;  // the list of which blocks are given back next
  std::array<List, SizeDemand::kSlots> lists_;
  std::array<Place, kMostBlocks> places_;
};

}  // namespace cgtree
