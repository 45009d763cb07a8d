// DeviceAllocator: the caching allocator of a device, over the memory that contexts share.
#pragma once

#include <memory>

#include "allocator/device/device_memory.h"
#include "caching/caching_allocator.h"

namespace cgtree {

// Other libraries allocate from a DeviceAllocator.
//
// Thread safety: all functions may be called from any thread.
class DeviceAllocator {
 public:
  explicit DeviceAllocator(std::shared_ptr<DeviceMemory> memory);
  // With memory of its own.
  explicit DeviceAllocator(Device device)
      : DeviceAllocator(std::make_shared<DeviceMemory>(device)) {}
  ~DeviceAllocator() { memory_->remove_on_retire(on_retire_); }

  // Returns the allocator over DeviceMemory::shared(). It is made for the first user of a device
  // and ends with the last. Throws InvalidArgument if there is no such device.
  static std::shared_ptr<DeviceAllocator> shared(Device device);

  Device device() const noexcept { return memory_->device(); }
  CachingAllocator& allocator() noexcept { return allocator_; }
  SegmentCache& cache() noexcept { return memory_->cache(); }
  Budget& budget() noexcept { return memory_->budget(); }

 private:
  const std::shared_ptr<DeviceMemory> memory_;
  CachingAllocator allocator_{memory_->cache()};
  const std::size_t on_retire_;
};

}  // namespace cgtree
