// SizeDemand: the sizes that a thread requests from a pool repeatedly.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "allocator/pool/block_mark.h"

namespace cgtree {

// A SizeDemand decides for which sizes a thread should keep blocks. Each slot of a hash counts
// requests of one size; another size takes it over when the count has fallen to 0.
//
// A miss costs more than no cache: whether there is a block is unknown beforehand, and blocks that
// are kept in vain are given back later. Caching therefore pauses if uses are fewer than misses.
//
// Thread safety: used by its thread alone, so that requests for other sizes take no lock.
class SizeDemand {
 public:
  static constexpr std::size_t kSlots = 128;

  static std::size_t slot_of(std::size_t bytes) {
    return static_cast<std::uint16_t>(unit_of(bytes) * 40503u) >> 9;
  }

  // Notes a request. Returns true if the size is in demand; then call note_use() or note_miss().
  bool ask(std::size_t bytes) {
    if (pause_ > 0) {
      --pause_;
      return false;
    }
    const bool is = bytes <= BlockMark::kLargest && count(bytes) >= kRepeats;
    if (!is) note_miss();
    return is;
  }
  // The next two note whether a kept block served the request.
  void note_use() {
    if (balance_ < kMostBalance) ++balance_;
  }
  void note_miss() {
    if (--balance_ >= 0) [[likely]] {
      return;
    }
    balance_ = kTrial;
    pause_ = kPause;
  }
  bool is_in_demand(std::size_t bytes) const {
    const Slot& slot = slots_[slot_of(bytes)];
    return pause_ == 0 && slot.unit == unit_of(bytes) && slot.count >= kRepeats;
  }

  // Notes that blocks of the size were kept in vain: it must be requested again.
  void forget(std::size_t bytes) {
    Slot& slot = slots_[slot_of(bytes)];
    if (slot.unit == unit_of(bytes)) slot.count = 0;
  }

 private:
  static constexpr std::uint16_t kRepeats = 2;  // requests that make a size in demand
  static constexpr std::uint16_t kMostCount = 4;
  // In requests. After a pause, kTrial more misses than uses begin the next one.
  static constexpr int kMostBalance = 1024;
  static constexpr int kTrial = 256;
  static constexpr std::uint32_t kPause = 64 * 1024;

  static std::uint16_t unit_of(std::size_t bytes) {
    return static_cast<std::uint16_t>(bytes / kBlockAlignment);
  }

  struct Slot {
    std::uint16_t unit = 0;
    std::uint16_t count = 0;
  };
  // Counts a request of the size. Returns the count, or 0 if the slot is another size's.
  unsigned count(std::size_t bytes) {
    Slot& slot = slots_[slot_of(bytes)];
    if (slot.unit == unit_of(bytes)) {
      if (slot.count < kMostCount) ++slot.count;
    } else if (slot.count > 0) {
      --slot.count;
      return 0;
    } else {
      slot = {unit_of(bytes), 1};
    }
    return slot.count;
  }

  int balance_ = kMostBalance;  // of uses over misses
  std::uint32_t pause_ = 0;     // requests left of it
  std::array<Slot, kSlots> slots_;
};

}  // namespace cgtree
