// Takes segments from the device's data space.
#include "allocator/segments/device_segment_source.h"

#include "interop/device/device_memory.h"

namespace cgtree {

void* DeviceSegmentSource::allocate(std::size_t bytes, StreamId) {
  return allocate_device_memory(device_, bytes);
}

void DeviceSegmentSource::free(void* segment, std::size_t, StreamId) noexcept {
  free_device_memory(device_, segment);
}

}  // namespace cgtree
