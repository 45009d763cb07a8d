// DeviceSegments: what all contexts of one device take their segments from.
#pragma once

#include <memory>

#include "allocator/segments/budget.h"
#include "allocator/segments/device_segment_source.h"
#include "allocator/segments/device_stream_events.h"
#include "allocator/segments/segment_cache.h"

namespace cgtree {

// One cache and one budget for a device. While any user has a capture open, nothing is given back
// to the device.
//
// Threads: any.
class DeviceSegments {
 public:
  // `process` is the budget above the device's; null: none. It must outlive this.
  explicit DeviceSegments(Device device, std::size_t max_bytes = SIZE_MAX,
                          Budget* process = nullptr);

  // Those that contexts share unless they are told otherwise: made for the first user of a device,
  // given back after the last. Throws InvalidArgument if there is no such device.
  static std::shared_ptr<DeviceSegments> shared(Device device);

  Device device() const noexcept { return device_; }
  SegmentCache& cache() noexcept { return cache_; }
  Budget& budget() noexcept { return budget_; }

 private:
  const Device device_;
  DeviceSegmentSource source_;
  std::unique_ptr<DeviceStreamEvents> events_;  // null where the device knows none
  Budget budget_;
  SegmentCache cache_;
};

}  // namespace cgtree
