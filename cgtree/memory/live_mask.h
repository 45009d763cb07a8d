// LiveMask: one bit per slot, set while a handle to the output in the slot exists.
//
// A set bit is also a reference to the memory of the context, as long as the context calls: the
// hand-over of its end is in the words, so that a thread that clears a bit learns whether the
// context had ended by then.
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

// A SlotSet is a set of slots, as words of kSlotsPerWord bits: the slots that a recording conflicts
// with.
using SlotSet = std::vector<std::uint64_t>;

// The last bit of a word of the LiveMask is no slot's.
inline constexpr std::uint32_t kSlotsPerWord = 63;

inline constexpr std::uint64_t bit_of_slot(std::uint32_t slot) noexcept {
  return std::uint64_t{1} << (slot % kSlotsPerWord);
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

class LiveMask {
 public:
  // Makes room for slots [0, count).
  void reserve(std::uint32_t count) {
    const std::uint32_t used = (count + kSlotsPerWord - 1) / kSlotsPerWord;
    while (chunks_.size() * kWordsPerChunk < used)
      chunks_.push_back(std::make_unique<Chunk>());
    used_ = used;  // after all that may throw
  }

  std::atomic<std::uint64_t>& word_of(std::uint32_t slot) const noexcept {
    return word(slot / kSlotsPerWord);
  }

  // Clears a bit. Returns whether hand_over() had been called by then. Any thread.
  static bool clear(std::atomic<std::uint64_t>& word, std::uint64_t bit) noexcept {
    return (word.fetch_and(~bit, std::memory_order_acq_rel) & kEnded) != 0;
  }
  // Returns how many bits are set: as many clear() will return true. Called once, by the last
  // caller.
  std::size_t hand_over() noexcept {
    int live = 0;
    for (std::size_t i = 0; i < used_; ++i)
      live += std::popcount(word(i).fetch_or(kEnded, std::memory_order_acq_rel));
    return static_cast<std::size_t>(live);
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
    for (std::size_t i = 0; i < used_; ++i) {
      const std::uint64_t apart = i < set.size() ? set[i] : 0;
      if ((word(i).load(std::memory_order_acquire) & ~apart) != 0) return true;
    }
    return false;
  }

  // Calls visit(slot) for each live slot, in order.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (std::uint32_t i = 0; i < used_; ++i) {
      std::uint64_t bits = word(i).load(std::memory_order_acquire) & ~kEnded;
      for (; bits != 0; bits &= bits - 1)
        visit(i * kSlotsPerWord + static_cast<std::uint32_t>(std::countr_zero(bits)));
    }
  }

 private:
  static constexpr std::uint64_t kEnded = std::uint64_t{1} << kSlotsPerWord;
  static constexpr std::size_t kWordsPerChunk = 8;
  using Chunk = std::array<std::atomic<std::uint64_t>, kWordsPerChunk>;

  std::atomic<std::uint64_t>& word(std::size_t index) const noexcept {
    return (*chunks_[index / kWordsPerChunk])[index % kWordsPerChunk];
  }

  std::uint32_t used_ = 0;  // words that have slots
  std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace cgtree
