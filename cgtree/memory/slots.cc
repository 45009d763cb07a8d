// Makes slots and puts storages into them.
#include "cgtree/memory/slots.h"

#include "base/check.h"

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

void Slots::reserve(const Range& range, Region region) {
  const auto [found, is_new] = by_range_.try_emplace({range.address, range.bytes}, nullptr);
  if (found->second != nullptr) return;
  const std::uint32_t number = count_;
  live_.reserve(number + 1);
  persistent_.resize(number / 64 + 1, 0);
  Slot& slot = slots_.emplace_back();
  ++count_;
  slot.number = number;
  slot.range = range;
  slot.region = region;
  slot.live_word = &live_.word_of(number);
  slot.live_bit = LiveMask::bit_of(number);
  found->second = &slot;
}

Slot& Slots::place(Storage& storage, bool persistent) noexcept {
  const auto found = by_range_.find({storage.address(), storage.bytes()});
  CGTREE_CHECK(found != by_range_.end());
  Slot& slot = *found->second;
  CGTREE_CHECK(!slot.is_live());  // the bytes were free in the pool
  delete slot.current;
  slot.current = &storage;
  slot.persistent = persistent;
  slot.is_kept = false;
  set_slot(persistent_, slot.number, persistent);
  return slot;
}

void Slots::validate() const {
  CGTREE_CHECK(count_ == slots_.size());
  for (const Slot& slot : slots_)
    CGTREE_CHECK(!slot.is_live() || slot.current != nullptr);
}

}  // namespace cgtree
