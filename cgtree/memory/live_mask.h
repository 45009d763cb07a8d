// LiveMask: the set of live slots. A slot is live while a handle to its output exists.
//
// The references of its storage decide. Each slot also has a bit, which is set when a life begins
// and cleared some time after it ends, so that a call looks only at storages that are live or were
// recently, and a release changes nothing but the storage:
//
//   a storage has references  =>  the bit of its slot is set
//
// Thread safety: the caller of the context sets and clears bits. Any thread may release storages.
// Other threads may test for liveness while they hold the mutex under which reserve() is called and
// storages of slots are deleted.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "interop/tensor/storage.h"

namespace cgtree {

// A SlotSet is a set of slots, as words of kSlotsPerWord bits: those that a recording conflicts
// with.
using SlotSet = std::vector<std::uint64_t>;

inline constexpr std::uint32_t kSlotsPerWord = 64;

inline constexpr std::uint64_t bit_of_slot(std::uint32_t slot) noexcept {
  return std::uint64_t{1} << (slot % kSlotsPerWord);
}

// Returns the first slot of a word. Requires: bits != 0.
inline std::uint32_t first_slot(std::uint64_t bits) noexcept {
  return static_cast<std::uint32_t>(std::countr_zero(bits));
}

inline bool has_slot(const SlotSet& set, std::uint32_t slot) noexcept {
  const std::uint32_t word = slot / kSlotsPerWord;
  return word < set.size() && (set[word] & bit_of_slot(slot)) != 0;
}

inline void add_slot(SlotSet& set, std::uint32_t slot) {
  const std::uint32_t word = slot / kSlotsPerWord;
  if (word >= set.size()) set.resize(word + 1, 0);
  set[word] |= bit_of_slot(slot);
}

inline void remove_slot(SlotSet& set, std::uint32_t slot) noexcept {
  if (has_slot(set, slot)) set[slot / kSlotsPerWord] &= ~bit_of_slot(slot);
}

// A Lives has the storages that live in kSlotsPerWord slots, or did last, and their bits.
struct Lives {
  std::array<std::atomic<Storage*>, kSlotsPerWord> storages{};
  std::atomic<std::uint64_t> bits{0};

  bool is_live(std::uint32_t index) const noexcept {
    const Storage* const storage = storages[index].load(std::memory_order_acquire);
    return storage != nullptr && storage->references() > 0;
  }
};

class LiveMask {
 public:
  // Makes room for slots [0, count).
  void reserve(std::uint32_t count) {
    const std::uint32_t used = (count + kSlotsPerWord - 1) / kSlotsPerWord;
    while (lives_.size() < used)
      lives_.push_back(std::make_unique<Lives>());
  }

  Lives& lives_of(std::uint32_t slot) const noexcept { return *lives_[slot / kSlotsPerWord]; }

  // Returns true if any slot of `set` is live.
  bool intersects(const SlotSet& set) const noexcept {
    for (std::size_t i = 0; i < set.size(); ++i) {
      std::uint64_t bits = lives_[i]->bits.load(std::memory_order_relaxed) & set[i];
      for (; bits != 0; bits &= bits - 1) {
        if (lives_[i]->is_live(first_slot(bits))) return true;
      }
    }
    return false;
  }

  // Returns true if any live slot is not in `set`. Clears the bits of dead slots before it, so that
  // each life is looked at once after its end.
  bool any_beside(const SlotSet& set) noexcept {
    for (std::size_t i = 0; i < lives_.size(); ++i) {
      Lives& lives = *lives_[i];
      const std::uint64_t bits = lives.bits.load(std::memory_order_relaxed);
      const std::uint64_t apart = i < set.size() ? bits & set[i] : 0;
      std::uint64_t beside = bits ^ apart;
      while (beside != 0 && !lives.is_live(first_slot(beside)))
        beside &= beside - 1;
      lives.bits.store(beside | apart, std::memory_order_relaxed);
      if (beside != 0) return true;
    }
    return false;
  }

  // Calls visit(slot) for each slot of `set` that is live, in order.
  template <typename Visit>
  void for_each_of(const SlotSet& set, Visit&& visit) const {
    for (std::uint32_t i = 0; i < set.size(); ++i) {
      std::uint64_t bits = lives_[i]->bits.load(std::memory_order_relaxed) & set[i];
      for (; bits != 0; bits &= bits - 1) {
        const std::uint32_t index = first_slot(bits);
        if (lives_[i]->is_live(index)) visit(i * kSlotsPerWord + index);
      }
    }
  }
  // Calls visit(slot) for each live slot, in order.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (std::uint32_t i = 0; i < lives_.size(); ++i) {
      std::uint64_t bits = lives_[i]->bits.load(std::memory_order_relaxed);
      for (; bits != 0; bits &= bits - 1) {
        const std::uint32_t index = first_slot(bits);
        if (lives_[i]->is_live(index)) visit(i * kSlotsPerWord + index);
      }
    }
  }

 private:
  std::vector<std::unique_ptr<Lives>> lives_;
};

}  // namespace cgtree
