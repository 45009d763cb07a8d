// DeviceAllocator: the caching allocator of a device, with its segments, budget and driver gate.
#pragma once

#include <memory>

#include "allocator/segments/budget.h"
#include "allocator/segments/device_sources.h"
#include "allocator/segments/segment_cache.h"
#include "caching/caching_allocator.h"
#include "caching/device_streams.h"
#include "interop/device/stream.h"

namespace cgtree {

// A DeviceAllocator is what the contexts of a device, its pinned memory and other libraries
// allocate from. All of them share one cache of segments, one budget and one driver gate: while a
// capture of one of them is open, no segment is freed on the device.
//
// Thread safety: all functions may be called from any thread.
class DeviceAllocator {
 public:
  // `process` is the budget above the device's, or null. It must outlive this object.
  explicit DeviceAllocator(Device device, std::size_t max_bytes = SIZE_MAX,
                           Budget* process = nullptr);
  // Over a caller's source, which must outlive this object.
  DeviceAllocator(Device device, SegmentSource& segments);

  // Returns the allocator that contexts share unless they have segments of their own. It is made
  // for the first user of a device and ends with the last. Throws InvalidArgument if there is no
  // such device.
  static std::shared_ptr<DeviceAllocator> shared(Device device);

  Device device() const noexcept { return device_; }
  CachingAllocator& allocator() noexcept { return allocator_; }
  SegmentCache& cache() noexcept { return cache_; }
  Budget& budget() noexcept { return budget_; }

 private:
  const Device device_;
  DeviceSegmentSource source_;
  std::unique_ptr<DeviceStreamEvents> events_;  // null if the device has none
  Budget budget_;
  SegmentCache cache_;
  CachingAllocator allocator_{cache_};
  // Of all devices: blocks may be used on a stream of another one.
  const StreamWatch watch_{[this](StreamRef, StreamIdentity stream) {
    if (stream == StreamIdentity::kNone) return;  // it has no name yet
    allocator_.retire(static_cast<StreamId>(stream), StreamProgress::Work::kMayBePending);
  }};
};

}  // namespace cgtree
