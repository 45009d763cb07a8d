// Makes slots and puts storages into them.
#include "cgtree/memory/slots.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/room.h"

namespace cgtree {

std::size_t Slots::live_count() const {
  std::size_t count = 0;
  live_.for_each([&](std::uint32_t) { ++count; });
  return count;
}

std::size_t Slots::live_bytes() const {
  std::size_t bytes = 0;
  live_.for_each([&](std::uint32_t number) { bytes += slots_[number].range.bytes; });
  return bytes;
}

void Slots::reserve(const Range& range, Region region, bool persistent) {
  const auto [found, is_new] =
      by_range_.try_emplace({range.address, range.bytes, persistent}, nullptr);
  if (found->second != nullptr) {
    // A returned segment may have come to the other pool. A live slot keeps its segment.
    if (!found->second->is_live()) found->second->region = region;
    return;
  }
  make_room(changed_);
  Slot& slot = free_.empty() ? add() : slots_[free_.back()];
  if (!free_.empty()) free_.pop_back();
  slot.range = range;
  slot.region = region;
  slot.persistent = persistent;
  if (persistent) add_slot(persistent_, slot.number);
  changed_.push_back(slot.number);
  found->second = &slot;
}

Slot& Slots::add() {
  const std::uint32_t number = count_;
  live_.reserve(number + 1);
  persistent_.resize(number / kSlotsPerWord + 1, 0);
  Slot& slot = slots_.emplace_back();
  ++count_;
  slot.number = number;
  slot.lives = &live_.lives_of(number);
  slot.live_bit = bit_of_slot(number);
  return slot;
}

// Looks again when twice as many are in use: each number is looked at a constant number of times.
void Slots::recycle() {
  if (!free_.empty() || count_ < recycle_at_) return;
  free_.reserve(count_);
  changed_.reserve(changed_.size() + count_);
  for (std::uint32_t number = count_; number-- > 0;) {
    Slot& slot = slots_[number];
    if (slot.recordings > 0 || slot.tracked || slot.is_live()) continue;
    by_range_.erase({slot.range.address, slot.range.bytes, slot.persistent});
    delete slot.current();
    slot.set_current(nullptr);
    slot.range = {};
    slot.persistent = false;
    remove_slot(persistent_, number);
    free_.push_back(number);
    changed_.push_back(number);
  }
  const auto in_use = static_cast<std::uint32_t>(count_ - free_.size());
  recycle_at_ = std::max(kFewSlots, 2 * in_use);
}

Slot& Slots::place(Storage& storage, bool persistent) noexcept {
  const auto found = by_range_.find({storage.address(), storage.bytes(), persistent});
  CGTREE_CHECK(found != by_range_.end());
  Slot& slot = *found->second;
  CGTREE_CHECK(!slot.is_live());  // the bytes were free in the pool
  delete slot.current();
  slot.set_current(&storage);
  slot.outlives_steps = false;
  slot.keepers = 0;
  slot.workspace = persistent ? next_workspace() : 0;
  return slot;
}

std::size_t Slots::orphan() noexcept {
  std::size_t count = 0;
  live_.for_each([&](std::uint32_t number) { count += slots_[number].current()->orphan(); });
  return count;
}

void Slots::validate() const {
  CGTREE_CHECK(count_ == slots_.size());
  for (const Slot& slot : slots_)
    CGTREE_CHECK(!slot.is_live() || (slot.lives->bits.load() & slot.live_bit) != 0);
}

}  // namespace cgtree
