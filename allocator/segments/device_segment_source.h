// Segments straight from a device.
#pragma once

#include "allocator/segments/segment_source.h"
#include "interop/device/device.h"

namespace cgtree {

// Safe while captures are open: see interop/device/device_memory.h.
class DeviceSegmentSource final : public SegmentSource {
 public:
  explicit DeviceSegmentSource(Device device) noexcept : device_(device) {}

  void* allocate(std::size_t bytes, StreamId stream) override;
  void free(void* segment, std::size_t bytes, StreamId stream) noexcept override;

 private:
  const Device device_;
};

}  // namespace cgtree
