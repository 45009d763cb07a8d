// Segments of host memory that a device copies from and to without a staging buffer.
#pragma once

#include "allocator/segments/segment_source.h"
#include "interop/device/device.h"

namespace cgtree {

// Safe while captures are open, as DeviceSegmentSource.
class PinnedSegmentSource final : public SegmentSource {
 public:
  explicit PinnedSegmentSource(Device device) noexcept : device_(device) {}

  void* allocate(std::size_t bytes, StreamId stream) override;
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override;

 private:
  const Device device_;
};

}  // namespace cgtree
