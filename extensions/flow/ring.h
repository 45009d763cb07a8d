// The ring of a LoopStream: rows that a device writes while the host reads.
//
// It has kSpareSlots more slots than the rows that the host may be behind, so that a readable row
// is not being written: while the device writes row w, the host may still see that w - 1 were
// written, because only the fence after row w also orders that number. The host copies a row, and
// then checks that it was still readable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "interop/device/device_api.h"

namespace cgtree {

inline constexpr std::uint64_t kSpareSlots = 2;

// In pinned memory, before the slots. Each side writes a separate cache line.
struct RingHeader {
  alignas(64) std::uint64_t written = 0;  // rows, by the device
  alignas(64) std::uint64_t stopped = 0;  // loops up to this number end, by the host
};

// Precedes the bytes of a row.
struct RingSlot {
  std::uint64_t loop;   // from 1 on
  std::int32_t round;   // from 0 on
  std::uint32_t bytes;  // of the row
  std::uint32_t is_last;
  std::uint32_t unused;
};

// In memory of the device.
struct RingState {
  std::uint64_t loops;    // begun
  std::uint64_t written;  // as RingHeader
  std::int32_t goes_on;   // true if the loop has another round
  std::int32_t unused;
};

// The arguments of kernels that write a ring.
struct Ring {
  RingHeader* header;
  std::byte* slots;
  RingState* state;
  std::uint64_t slot_bytes;
  std::uint64_t slot_count;
};

// Returns the address of slot `row % slot_count`.
CGTREE_HOST_DEVICE inline std::byte* slot_of(const Ring& ring, std::uint64_t row) {
  return ring.slots + row % ring.slot_count * ring.slot_bytes;
}

}  // namespace cgtree
