// Slots: the ranges where outputs live, which of them are live, and the generation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "allocator/pool/block.h"
#include "base/published.h"
#include "cgtree/memory/live_mask.h"
#include "interop/tensor/storage.h"

namespace cgtree {

// A Region is one of the three pools of a context. Between calls nothing in kScratch is live
// (except memory that a warm-up kept on purpose), so the intermediates of all recordings may
// overlap.
enum class Region : std::uint8_t {
  kOutput,   // outputs
  kScratch,  // all memory that is dead when the call returns
  kEager,    // allocations of calls that run eagerly; no recording touches them
};

// A Holder identifies an output: its function and its index.
struct Holder {
  std::uint32_t function = 0;
  std::uint32_t output = 0;
};

// A Slot is a range of the pool where one output lives. Several recordings may put outputs into the
// same range. They share the slot, because only one of those outputs can be live at a time. Memory
// that warm-ups keep has its own slots, which no recording shares.
struct Slot {
  // Constant while the slot is live or used by a recording.
  std::uint32_t number = 0;  // constant
  Range range;
  bool persistent = false;          // kept by a warm-up: mark_step() does not end it
  Region region = Region::kOutput;  // may change while the slot is not live
  Lives* lives = nullptr;           // in the context's LiveMask
  std::uint64_t live_bit = 0;

  bool is_live() const noexcept { return lives->is_live(number % kSlotsPerWord); }
  // The storage that lives here, or the dead one to revive.
  Storage* current() const noexcept {
    return lives->storages[number % kSlotsPerWord].load(std::memory_order_relaxed);
  }
  void set_current(Storage* storage) noexcept {
    lives->storages[number % kSlotsPerWord].store(storage, std::memory_order_release);
  }

  Published<Holder> holder;  // the output that lives here, or did last

  // Used by the caller of the context.
  std::uint32_t recordings = 0;  // the number with outputs here
  bool outlives_steps = false;   // Context::keep(): mark_step() does not end current()
  // References of recordings to current() that are not inputs.
  std::uint32_t keepers = 0;
  std::uint64_t workspace = 0;  // the number of the workspace that current() is; 0: none

  // Guarded by the mutex of ContextMemory: the pool has a live block for the slot.
  bool tracked = false;
};

// Slots are made when a step is warmed up or recorded. A slot is live while a handle to its output
// exists. A slot that is neither live nor used by a recording may be recycled: its number then
// stands for another range, so that there are few more numbers than were in use at one time.
//
// Example: two recordings of y = f(x) alternate between slots 0 and 1. While y is held in slot 0,
// slot 0 is live, so the first recording, which writes it, conflicts, and the second is replayed:
// its output is put into slot 1, which is then live, too. When the first y is released, its storage
// has no references, and slot 0 is not live: the first recording fits again.
//
// Thread safety: any thread may end the life of a storage. Everything else belongs to the caller of
// the context, except where ContextMemory holds its mutex.
class Slots {
 public:
  const LiveMask& live() const noexcept { return live_; }
  // Returns true if any slot is live that was not kept by a warm-up.
  bool any_output_live() noexcept { return live_.any_beside(persistent_); }
  std::size_t live_count() const;
  std::size_t live_bytes() const;

  std::uint32_t count() const noexcept { return count_; }
  const Slot& operator[](std::uint32_t number) const noexcept { return slots_[number]; }
  Slot& operator[](std::uint32_t number) noexcept { return slots_[number]; }
  auto begin() noexcept { return slots_.begin(); }
  auto end() noexcept { return slots_.end(); }
  auto begin() const noexcept { return slots_.begin(); }
  auto end() const noexcept { return slots_.end(); }

  std::uint64_t generation() const noexcept { return generation_.load(std::memory_order_relaxed); }
  // Returns a new number for a workspace.
  std::uint64_t next_workspace() noexcept { return ++workspaces_; }
  void begin_generation() noexcept { generation_.fetch_add(1, std::memory_order_relaxed); }

  // Makes a slot for outputs in the range, or for memory that a warm-up keeps there, unless it
  // exists; it is in `region` from now on. Throws std::bad_alloc; nothing has changed then.
  void reserve(const Range& range, Region region, bool persistent = false);
  // Frees unused numbers, if there are many. Requires: each reserved slot has been placed. Throws
  // std::bad_alloc; nothing has changed then.
  void recycle();
  // The slots whose range has changed since clear_changed(); a slot may occur repeatedly.
  const std::vector<std::uint32_t>& changed() const noexcept { return changed_; }
  void clear_changed() noexcept { changed_.clear(); }

  // Makes `storage` the current storage of the slot of its range. Requires: reserve() was called
  // for it, and the slot is not live. The slot is not live yet; see set_live().
  Slot& place(Storage& storage, bool persistent) noexcept;

  // Calls visit(slot) for each slot that a warm-up kept and that may be live.
  template <typename Visit>
  void for_each_persistent(Visit&& visit) const {
    live_.for_each([&](std::uint32_t number) {
      if (slots_[number].persistent) visit(slots_[number]);
    });
  }

  // Must be called when a life begins: the slot's storage then has a reference. Only the caller of
  // the context writes the word.
  static void set_live(Slot& slot) noexcept {
    std::atomic<std::uint64_t>& bits = slot.lives->bits;
    bits.store(bits.load(std::memory_order_relaxed) | slot.live_bit, std::memory_order_relaxed);
  }
  // Orphans the storages of the live slots, and returns their number.
  std::size_t orphan() noexcept;

  void validate() const;

 private:
  static constexpr std::uint32_t kFewSlots = 64;

  Slot& add();

  LiveMask live_;
  SlotSet persistent_;            // slots kept by a warm-up
  std::deque<Slot> slots_;        // by number; addresses are stable
  std::uint32_t count_ = 0;       // == slots_.size(), which a deque has to compute
  std::uint64_t workspaces_ = 0;  // numbered so far
  // By address, bytes, and the `persistent` flag.
  std::map<std::tuple<std::uintptr_t, std::size_t, bool>, Slot*> by_range_;
  std::vector<std::uint32_t> free_;  // numbers without a range, the lowest last
  std::vector<std::uint32_t> changed_;
  std::uint32_t recycle_at_ = kFewSlots;      // the count at which recycle() looks for free numbers
  std::atomic<std::uint64_t> generation_{0};  // written by the caller of the context
};

}  // namespace cgtree
