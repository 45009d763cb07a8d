// Finds, inserts and erases in the flat hash of live blocks.
#include "allocator/pool/live_index.h"

#include <bit>
#include <new>

#include "base/check.h"

namespace cgtree {
namespace {

constexpr std::size_t kFewestSlots = 256;
constexpr std::size_t kMostSlots = std::size_t{1} << 32;  // as many as hashes

int shift_for(std::size_t slots) {
  return 33 - std::bit_width(slots);
}

}  // namespace

LiveIndex::LiveIndex() : slots_(kFewestSlots), shift_(shift_for(kFewestSlots)) {
}

void LiveIndex::place(Slot slot) noexcept {
  std::size_t position = home(slot.hash);
  while (slots_[position].index != kNoBlock)
    position = after(position);
  slots_[position] = slot;
}

void LiveIndex::insert(std::uintptr_t address, BlockIndex index) noexcept {
  place({hash(address), index});
  ++size_;
}

// Returns an empty slot if the address is not in the index.
inline std::size_t LiveIndex::slot_of(const BlockTable& table,
                                      std::uintptr_t address) const noexcept {
  const std::uint32_t wanted = hash(address);
  std::size_t position = home(wanted);
  for (;; position = after(position)) {
    const Slot& slot = slots_[position];
    if (slot.index == kNoBlock) return position;
    if (slot.hash == wanted && table[slot.index].block.range.address == address) return position;
  }
}

BlockIndex LiveIndex::find(const BlockTable& table, std::uintptr_t address) const noexcept {
  return slots_[slot_of(table, address)].index;
}

BlockIndex LiveIndex::erase(const BlockTable& table, std::uintptr_t address) noexcept {
  const std::size_t position = slot_of(table, address);
  const BlockIndex index = slots_[position].index;
  if (index == kNoBlock) return kNoBlock;
  close_gap(position);
  --size_;
  return index;
}

// Moves later entries of the run forward, so that no probe meets an empty slot too early.
void LiveIndex::close_gap(std::size_t gap) noexcept {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t position = after(gap); slots_[position].index != kNoBlock;
       position = after(position)) {
    const std::size_t from_home = (position - home(slots_[position].hash)) & mask;
    const std::size_t from_gap = (position - gap) & mask;
    if (from_home < from_gap) continue;  // it would lie before its home
    slots_[gap] = slots_[position];
    gap = position;
  }
  slots_[gap] = Slot{};
}

void LiveIndex::grow(std::size_t count) {
  if (count > kMostSlots / 4) throw std::bad_alloc();
  std::vector<Slot> old(std::bit_ceil(4 * count));
  old.swap(slots_);
  shift_ = shift_for(slots_.size());
  for (const Slot& slot : old) {
    if (slot.index != kNoBlock) place(slot);
  }
}

}  // namespace cgtree
