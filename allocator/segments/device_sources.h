// DeviceSegmentSource and PinnedSegmentSource: segments straight from a device.
#pragma once

#include "allocator/segments/segment_source.h"
#include "interop/device/device.h"

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

}  // namespace cgtree
