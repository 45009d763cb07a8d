// Slot: a range of the pool where outputs live, and which of them lives there now.
//
// Several recordings may put outputs into the same range; they share the slot, since only one of
// those outputs can be live at a time.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/pool/block.h"
#include "interop/tensor/storage.h"

namespace cgtree {

// The three parts of a context's pool. Between calls nothing in kScratch is live (except what
// a warm-up left behind on purpose), so the intermediates of all recordings may overlap.
enum class Region : std::uint8_t {
  kOutput,   // outputs
  kScratch,  // everything that is dead when the call returns
  kEager,      // allocations of calls that run eagerly; no recording touches them
};

struct Slot {
  // Constant after construction.
  std::uint32_t number = 0;
  Range range;
  Region region = Region::kOutput;
  std::atomic<std::uint64_t>* live_word = nullptr;  // in the lane's LiveMask
  std::uint64_t live_bit = 0;

  // The lane's.
  Storage* current = nullptr;  // the storage that lives here, or the dead one to revive
  bool persistent = false;     // left behind by a warm-up: mark_step() does not end it

  // Guarded by the memory's mutex: the pool's bookkeeping has a block for it.
  bool tracked = false;
};

}  // namespace cgtree
