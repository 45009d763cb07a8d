// DeviceSegmentSource, PinnedSegmentSource and VirtualSegmentSource: segments from a device.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "allocator/pool/segment_source.h"
#include "base/mutex.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"

namespace cgtree {

// A DeviceSegmentSource takes segments from the device's data space. It may be used while captures
// are open: see interop/device/device.h.
class DeviceSegmentSource final : public SegmentSource {
 public:
  explicit DeviceSegmentSource(Device device) noexcept : device_(device) {}

  void* allocate(std::size_t bytes, StreamId stream) override;
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override;

 private:
  const Device device_;
};

// A PinnedSegmentSource takes segments of host memory that the device copies from and to without a
// staging buffer. It may be used while captures are open, too.
class PinnedSegmentSource final : public SegmentSource {
 public:
  explicit PinnedSegmentSource(Device device) noexcept : device_(device) {}

  void* allocate(std::size_t bytes, StreamId stream) override;
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override;

 private:
  const Device device_;
};

// A VirtualSegmentSource reserves a range of addresses for each segment, of its largest possible
// size, and maps memory at the beginning of it.
//
// The driver unmaps memory without waiting for work that uses it, so free() and shrink() wait for
// the work of the given stream. If waiting is impossible, because the stream captures, the memory
// stays mapped until a later call.
//
// Thread safety: all functions may be called from any thread.
class VirtualSegmentSource final : public SegmentSource {
 public:
  // Reserves `reserved_bytes` of addresses for each segment, or the segment's own size if that is
  // more. Throws InvalidArgument if the device cannot map memory.
  // Memory is mapped in pieces of at most `most_at_once` bytes, each of which can be unmapped
  // alone.
  explicit VirtualSegmentSource(Device device, std::size_t reserved_bytes = std::size_t{32} << 30,
                                std::size_t most_at_once = SIZE_MAX);
  // Aborts if a segment has not been freed.
  ~VirtualSegmentSource() override;

  // Returns the bytes of memory behind all segments.
  std::size_t mapped_bytes() const;

  void* allocate(std::size_t bytes, StreamId stream) override;
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override;
  bool grow(void* segment, std::size_t bytes, std::size_t grown, StreamId stream) override;
  std::size_t shrink(void* segment, std::size_t bytes, std::size_t least,
                     StreamId stream) noexcept override;
  void map(void* segment, std::size_t bytes, std::size_t offset, std::size_t count,
           StreamId stream) override;
  bool unmap(void* segment, std::size_t bytes, std::size_t offset, std::size_t count,
             StreamId stream) noexcept override;

 private:
  // Invariant: mapped == sum of pieces <= reserved.
  struct Reservation {
    std::size_t reserved = 0;
    std::size_t mapped = 0;           // the end of the last piece
    std::size_t holes = 0;            // unmapped bytes below that
    std::vector<std::size_t> pieces;  // bytes mapped at once, by address: unmapped only as a whole
    bool freed = false;               // by its user, but not unmapped yet
    StreamId stream = kIdle;          // the last stream of a freed segment
    bool is_busy = false;             // a thread waits for that stream, to unmap the segment
  };
  using Reservations = std::map<void*, Reservation>;

  void map_up_to(void* segment, Reservation& reservation, std::size_t bytes);
  void map_piece(void* begin, std::size_t bytes);
  void unmap_down_to(void* segment, Reservation& reservation, std::size_t least) noexcept;
  bool unmap_piece(void* begin, std::size_t bytes) noexcept;
  Reservation& in_use(void* segment) noexcept;
  bool is_done(StreamId stream) noexcept;
  void give_back(Reservations::iterator reservation) noexcept;
  void give_back_freed() noexcept;

  const Device device_;
  DeviceAPI& api_;
  const std::size_t granularity_;
  const std::size_t reserved_bytes_;
  const std::size_t most_at_once_;
  mutable Mutex<LockRank::kVirtualMemory> mutex_;  // guards all below
  Reservations reservations_;
};

}  // namespace cgtree
