// Makes the allocator of a device a client of its memory.
#include "caching/device_allocator.h"

namespace cgtree {

DeviceAllocator::DeviceAllocator(DeviceMemory& memory)
    : memory_(memory),
      on_retire_(memory_.add_on_retire([this](StreamId stream) { allocator_.retire(stream); })) {
}

std::shared_ptr<DeviceAllocator> DeviceAllocator::shared(Device device) {
  const std::shared_ptr<DeviceMemory> memory = DeviceMemory::shared(device);
  const DeviceMemory::Client client =
      memory->client([](DeviceMemory& of) { return std::make_shared<DeviceAllocator>(of); });
  return {memory, static_cast<DeviceAllocator*>(client.get())};
}

}  // namespace cgtree
