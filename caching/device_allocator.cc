// Makes the shared allocator of each device.
#include "caching/device_allocator.h"

#include <map>
#include <mutex>
#include <utility>

#include "base/mutex.h"

namespace cgtree {
namespace {

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

DeviceAllocator::DeviceAllocator(std::shared_ptr<DeviceMemory> memory)
    : memory_(std::move(memory)),
      on_retire_(memory_->add_on_retire([this](StreamId stream) { allocator_.retire(stream); })) {
}

std::shared_ptr<DeviceAllocator> DeviceAllocator::shared(Device device) {
  std::shared_ptr<DeviceMemory> memory = DeviceMemory::shared(device);  // takes a lock of this rank
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::weak_ptr<DeviceAllocator>& known = all.allocators[device];
  std::shared_ptr<DeviceAllocator> allocator = known.lock();
  if (allocator == nullptr)
    known = allocator = std::make_shared<DeviceAllocator>(std::move(memory));
  return allocator;
}

}  // namespace cgtree
