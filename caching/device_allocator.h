// DeviceAllocator: the caching allocator of a device, over the memory that contexts share.
#pragma once

#include <cstddef>
#include <memory>

#include "allocator/device/device_memory.h"
#include "caching/caching_allocator.h"

namespace cgtree {

// Other libraries allocate from a DeviceAllocator.
//
// Thread safety: all functions may be called from any thread.
class DeviceAllocator {
 public:
  // `memory` must outlive the allocator.
  explicit DeviceAllocator(DeviceMemory& memory);
  ~DeviceAllocator() { memory_.remove_on_retire(on_retire_); }
  DeviceAllocator(const DeviceAllocator&) = delete;
  DeviceAllocator& operator=(const DeviceAllocator&) = delete;

  // Returns the allocator over DeviceMemory::shared(). It is made for the first user, and destroyed
  // with that memory: with the last context of the device, or the last DeviceAllocator. Throws
  // InvalidArgument if there is no such device.
  static std::shared_ptr<DeviceAllocator> shared(Device device);

  Device device() const noexcept { return memory_.device(); }
  CachingAllocator& allocator() noexcept { return allocator_; }

 private:
  DeviceMemory& memory_;
  CachingAllocator allocator_{memory_.cache()};
  const std::size_t on_retire_;
};

}  // namespace cgtree
