// Takes segments from the device's pinned host memory.
#include "allocator/segments/pinned_segment_source.h"

#include "interop/device/device_memory.h"

namespace cgtree {

void* PinnedSegmentSource::allocate(std::size_t bytes, StreamId) {
  return allocate_pinned_memory(device_, bytes);
}

void PinnedSegmentSource::free(void* segment, std::size_t, StreamId) noexcept {
  free_pinned_memory(device_, segment);
}

}  // namespace cgtree
