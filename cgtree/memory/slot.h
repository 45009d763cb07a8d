// Slot: a range of the pool where one output lives.
//
// Several recordings may put outputs into the same range. They share the slot, because only one of
// those outputs can be live at a time.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/pool/block.h"
#include "interop/tensor/storage.h"

namespace cgtree {

// A Region is one of the three pools of a context. Between calls nothing in kScratch is live
// (except what a warm-up left behind on purpose), so the intermediates of all recordings may
// overlap.
enum class Region : std::uint8_t {
  kOutput,   // outputs
  kScratch,  // everything that is dead when the call returns
  kEager,    // allocations of calls that run eagerly; no recording touches them
};

struct Slot {
  // Constant after construction.
  std::uint32_t number = 0;
  Range range;
  Region region = Region::kOutput;
  std::atomic<std::uint64_t>* live_word = nullptr;  // in the context's LiveMask
  std::uint64_t live_bit = 0;

  bool is_live() const noexcept { return (live_word->load() & live_bit) != 0; }

  // Used by the caller of the context.
  Storage* current = nullptr;  // the storage that lives here, or the dead one to revive
  bool persistent = false;     // left behind by a warm-up: mark_step() does not end it

  // Guarded by the mutex of ContextMemory: the pool has a live block for the slot.
  bool tracked = false;
};

}  // namespace cgtree
