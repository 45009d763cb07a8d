// Chooses which blocks a full cache gives back.
#include "allocator/pool/thread_cache.h"

namespace cgtree {

ThreadCache::ThreadCache(ThreadCaches& caches) : owner(&caches) {
  for (std::uint8_t i = 1; i < kMostBlocks; ++i)
    places_[i - 1].next = i;
}

void ThreadCache::make_room(std::size_t bytes, Popped& popped) noexcept {
  const std::uint32_t fewest = free_first_ == kNone ? kMostBlocks / 4 : 0;
  const std::size_t slot = SizeDemand::slot_of(bytes);
  const List& own = lists_[slot];
  if (!own.is_empty() && own.bytes != bytes) turn_ = slot;
  while (popped.count < fewest || !has_room(bytes))
    demand.forget(pop_in_turn(popped));
}

void ThreadCache::pop_all(Popped& popped) noexcept {
  while (!is_empty())
    pop_in_turn(popped);
}

// Removes a block of the list whose turn it is; returns its bytes. Requires: there is a block.
std::size_t ThreadCache::pop_in_turn(Popped& popped) noexcept {
  while (lists_[turn_].is_empty())
    turn_ = (turn_ + 1) % lists_.size();
  List& list = lists_[turn_];
  popped.blocks[popped.count++] = pop(list);
  return list.bytes;
}

}  // namespace cgtree
