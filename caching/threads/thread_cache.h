// ThreadCache: the freed blocks of one pool that one thread keeps.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "allocator/pool/pool_caches.h"
#include "base/mutex.h"
#include "caching/threads/block_marks.h"
#include "caching/threads/size_demand.h"

namespace cgtree {

class ThreadCaches;

// A ThreadCache holds blocks that one thread has freed. The last one is the front, because the next
// request often has its size; the others are in a list for each slot of SizeDemand. The blocks of a
// list have one size.
//
// Its lock is nearly always the thread's; other threads take it to count the blocks or to take them
// back.
class ThreadCache {
 public:
  static constexpr std::uint32_t kMostBlocks = 64;
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;

  explicit ThreadCache(ThreadCaches& caches);

  alignas(
      64) SpinMutex<LockRank::kThreadCache> mutex;  // guards calls, and all below except `demand`
  std::atomic<ThreadCaches*>
      owner;               // null once its pool is closed; read without the lock as a hint
  bool is_open = true;     // if false, nothing is cached
  bool has_ended = false;  // true if the thread has ended
  Flow flow;

  bool is_empty() const { return bytes_ == 0; }
  std::size_t bytes() const { return bytes_; }

  // Returns false if pop() would find nothing. Only the thread itself may call this without the
  // lock: others do not push.
  bool may_have(std::size_t bytes) const {
    return front_bytes_.load(std::memory_order_relaxed) == bytes || !list_of(bytes).is_empty();
  }
  // Removes and returns the last pushed block of exactly `bytes`; it has no word if there is none.
  CachedBlock pop(std::size_t bytes) noexcept {
    if (front_bytes_.load(std::memory_order_relaxed) == bytes) [[likely]] {
      return pop_front();
    }
    List& list = list_of(bytes);
    return list.is_empty() || list.bytes != bytes ? CachedBlock() : pop(list);
  }
  bool has_room(std::size_t bytes) const {
    return bytes_ + bytes <= kMostBytes && (front_bytes() == 0 || can_list(front_bytes()));
  }
  // Requires: there is room.
  void push(const CachedBlock& block, std::size_t bytes) noexcept {
    if (front_bytes() != 0) list_front();
    front_ = block;
    front_bytes_.store(static_cast<std::uint32_t>(bytes), std::memory_order_relaxed);
    bytes_ += bytes;
  }

  // Blocks that have been removed.
  struct Popped {
    std::array<CachedBlock, kMostBlocks> blocks;
    std::uint32_t count = 0;
    std::span<const CachedBlock> all() const { return std::span(blocks).first(count); }
  };
  // Makes room, with as few locks of the pool as possible: a full cache gives back a quarter, from
  // each list in turn.
  void make_room(std::size_t bytes, Popped& popped) noexcept;
  void pop_all(Popped& popped) noexcept;

  SizeDemand demand;  // used by the thread alone

  // Calls `visit(block, bytes)` for each.
  template <typename Visit>
  void for_each(Visit visit) const {
    if (front_bytes() != 0) visit(front_, front_bytes());
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

  List& list_of(std::size_t bytes) { return lists_[SizeDemand::slot_of(bytes)]; }
  const List& list_of(std::size_t bytes) const { return lists_[SizeDemand::slot_of(bytes)]; }
  std::size_t front_bytes() const { return front_bytes_.load(std::memory_order_relaxed); }
  bool can_list(std::size_t bytes) const {
    const List& list = list_of(bytes);
    return free_first_ != kNone && (list.is_empty() || list.bytes == bytes);
  }

  CachedBlock pop_front() noexcept {
    bytes_ -= front_bytes();
    front_bytes_.store(0, std::memory_order_relaxed);
    return front_;
  }
  void list_front() noexcept;
  CachedBlock pop(List& list) noexcept {
    const std::uint8_t place = list.first.load(std::memory_order_relaxed);
    list.first.store(std::exchange(places_[place].next, free_first_), std::memory_order_relaxed);
    free_first_ = place;
    bytes_ -= list.bytes;
    return places_[place].block;
  }
  std::size_t pop_in_turn(Popped& popped) noexcept;

  std::atomic<std::uint32_t> front_bytes_{0};  // 0 without a front
  std::uint8_t free_first_ = 0;  // first place without a block; kNone if there is none
  std::size_t bytes_ = 0;
  CachedBlock front_;
  std::size_t turn_ = 0;  // the next list that gives blocks back
  std::array<List, SizeDemand::kSlots> lists_;
  std::array<Place, kMostBlocks - 1> places_;
};

}  // namespace cgtree
