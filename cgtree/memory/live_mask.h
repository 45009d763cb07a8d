// LiveMask: one bit per slot, set while a handle to the output in the slot exists.
//
// Thread safety: the caller of the context sets bits and reads; any thread clears the bit of a
// storage that it releases. Words never move once made, so that clearing needs no lock.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cgtree {

// A SlotSet is a set of slots, as words of 64 bits: the slots that a recording conflicts with.
using SlotSet = std::vector<std::uint64_t>;

inline void add_slot(SlotSet& set, std::uint32_t slot) {
  if (slot / 64 >= set.size()) set.resize(slot / 64 + 1, 0);
  set[slot / 64] |= std::uint64_t{1} << (slot % 64);
}

// Adds or removes a slot. Requires: the set has room for the slot.
inline void set_slot(SlotSet& set, std::uint32_t slot, bool member) noexcept {
  const std::uint64_t bit = std::uint64_t{1} << (slot % 64);
  set[slot / 64] = member ? set[slot / 64] | bit : set[slot / 64] & ~bit;
}

class LiveMask {
 public:
  // Makes room for slots [0, count).
  void reserve(std::uint32_t count) {
    slots_ = count;
    while (words() * 64 < count)
      chunks_.push_back(std::make_unique<Chunk>());
  }

  std::atomic<std::uint64_t>& word_of(std::uint32_t slot) const noexcept { return word(slot / 64); }
  static std::uint64_t bit_of(std::uint32_t slot) noexcept {
    return std::uint64_t{1} << (slot % 64);
  }

  // Returns true if any slot of `set` is live.
  bool intersects(const SlotSet& set) const noexcept {
    for (std::size_t i = 0; i < set.size(); ++i) {
      if ((word(i).load(std::memory_order_acquire) & set[i]) != 0) return true;
    }
    return false;
  }

  // Returns true if any slot is live that is not in `set`.
  bool any_beside(const SlotSet& set) const noexcept {
    const std::size_t used = (slots_ + 63) / 64;
    for (std::size_t i = 0; i < used; ++i) {
      const std::uint64_t apart = i < set.size() ? set[i] : 0;
      if ((word(i).load(std::memory_order_acquire) & ~apart) != 0) return true;
    }
    return false;
  }

  // Calls visit(slot) for each live slot, in order.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t i = 0; i < words(); ++i) {
      std::uint64_t bits = word(i).load(std::memory_order_acquire);
      for (; bits != 0; bits &= bits - 1) {
        visit(
            static_cast<std::uint32_t>(i * 64 + static_cast<std::size_t>(std::countr_zero(bits))));
      }
    }
  }

 private:
  static constexpr std::size_t kWordsPerChunk = 8;
  using Chunk = std::array<std::atomic<std::uint64_t>, kWordsPerChunk>;

  std::size_t words() const noexcept { return chunks_.size() * kWordsPerChunk; }
  std::atomic<std::uint64_t>& word(std::size_t index) const noexcept {
    return (*chunks_[index / kWordsPerChunk])[index % kWordsPerChunk];
  }

  std::uint32_t slots_ = 0;
  std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace cgtree
