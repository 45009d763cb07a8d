// Makes the allocator of a device a client of its memory.
#include "caching/device_allocator.h"

#include <utility>

namespace cgtree {

DeviceAllocator::DeviceAllocator(std::unique_ptr<DeviceMemory> own, DeviceMemory* shared)
    : own_(std::move(own)),
      memory_(shared != nullptr ? *shared : *own_),
      on_retire_(memory_.add_on_retire([this](StreamId stream) { allocator_.retire(stream); })) {
}

DeviceAllocator::DeviceAllocator(Device device)
    : DeviceAllocator(std::make_unique<DeviceMemory>(device), nullptr) {
}

std::shared_ptr<DeviceAllocator> DeviceAllocator::shared(Device device) {
  const std::shared_ptr<DeviceMemory> memory = DeviceMemory::shared(device);
  const DeviceMemory::Client client = memory->client([](DeviceMemory& of) {
    return std::shared_ptr<DeviceAllocator>(new DeviceAllocator(nullptr, &of));
  });
  return {memory, static_cast<DeviceAllocator*>(client.get())};
}

}  // namespace cgtree
