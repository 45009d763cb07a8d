// Allocates and frees segments of device memory and of pinned host memory.
#include "allocator/segments/device_sources.h"

#include "interop/device/device.h"

namespace cgtree {

void* DeviceSegmentSource::allocate(std::size_t bytes, StreamId) {
  return allocate_device_memory(device_, bytes);
}

void DeviceSegmentSource::free(void* segment, std::size_t, StreamId) noexcept {
  free_device_memory(device_, segment);
}

void* PinnedSegmentSource::allocate(std::size_t bytes, StreamId) {
  return allocate_pinned_memory(device_, bytes);
}

void PinnedSegmentSource::free(void* segment, std::size_t, StreamId) noexcept {
  free_pinned_memory(device_, segment);
}

}  // namespace cgtree
