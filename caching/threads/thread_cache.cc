// Chooses the blocks that a full cache gives back.
#include "caching/threads/thread_cache.h"

namespace cgtree {

ThreadCache::ThreadCache(ThreadCaches& caches) : owner(&caches) {
  for (std::uint8_t i = 1; i < places_.size(); ++i)
    places_[i - 1].next = i;
}

// Requires: can_list() is true for the front.
void ThreadCache::list_front() noexcept {
  List& list = list_of(front_bytes());
  const std::uint8_t place = free_first_;
  free_first_ = places_[place].next;
  places_[place] = {front_, list.first.load(std::memory_order_relaxed)};
  list.bytes = static_cast<std::uint32_t>(front_bytes());
  list.first.store(place, std::memory_order_relaxed);
}

void ThreadCache::make_room(std::size_t bytes, Popped& popped) noexcept {
  const std::uint32_t fewest = free_first_ == kNone ? kMostBlocks / 4 : 0;
  if (front_bytes() != 0 && !can_list(front_bytes())) turn_ = SizeDemand::slot_of(front_bytes());
  while (popped.count < fewest || !has_room(bytes))
    demand.forget(pop_in_turn(popped));
}

void ThreadCache::pop_all(Popped& popped) noexcept {
  while (!is_empty())
    pop_in_turn(popped);
}

// Removes a block of the next list in turn, or the front if all lists are empty; returns its bytes.
// Requires: there is a block.
std::size_t ThreadCache::pop_in_turn(Popped& popped) noexcept {
  CachedBlock& block = popped.blocks[popped.count++];
  if (bytes_ == front_bytes()) {
    const std::size_t bytes = bytes_;
    block = pop_front();
    return bytes;
  }
  while (lists_[turn_].is_empty())
    turn_ = (turn_ + 1) % lists_.size();
  block = pop(lists_[turn_]);
  return lists_[turn_].bytes;
}

}  // namespace cgtree
