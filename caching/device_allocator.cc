// Makes the shared allocator of each device.
#include "caching/device_allocator.h"

#include <map>
#include <mutex>

#include "base/mutex.h"
#include "interop/device/device.h"

namespace cgtree {
namespace {

std::unique_ptr<DeviceStreamEvents> events_of(Device device) {
  if (device_api(device).graphs() == nullptr) return nullptr;
  return std::make_unique<DeviceStreamEvents>(device);
}

// The registry belongs to the process, as the devices do.
struct Registry {
  Mutex<LockRank::kDevices> mutex;
  std::map<Device, std::weak_ptr<DeviceAllocator>> allocators;  // guarded by mutex
};

Registry& registry() {
  static auto* const made = new Registry;  // outlives every static that uses it
  return *made;
}

}  // namespace

DeviceAllocator::DeviceAllocator(Device device, std::size_t max_bytes, Budget* process)
    : device_(device),
      source_(device),
      events_(events_of(device)),
      budget_(to_string(device), max_bytes, process),
      cache_(source_, &budget_, events_.get()) {
}

DeviceAllocator::DeviceAllocator(Device device, SegmentSource& segments)
    : device_(device),
      source_(device),
      events_(events_of(device)),
      budget_("device"),
      cache_(segments, &budget_, events_.get()) {
}

std::shared_ptr<DeviceAllocator> DeviceAllocator::shared(Device device) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::weak_ptr<DeviceAllocator>& known = all.allocators[device];
  std::shared_ptr<DeviceAllocator> allocator = known.lock();
  if (allocator == nullptr) known = allocator = std::make_shared<DeviceAllocator>(device);
  return allocator;
}

}  // namespace cgtree
