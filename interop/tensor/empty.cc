// empty(), and the owner of tensors made outside of step functions.
#include "interop/tensor/empty.h"

#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "interop/device/device_memory.h"
#include "interop/device/registry.h"

namespace cgtree {
namespace {

thread_local StorageAllocator* t_allocator = nullptr;

// Owns storages whose memory came straight from a device. Has no state: one serves all.
class DeviceMemoryOwner final : public StorageOwner {
 public:
  void release(Storage& storage, bool) noexcept override {
    free_device_memory(storage.device(), reinterpret_cast<void*>(storage.address()));
    delete &storage;
  }
  void throw_stale(const Storage&) const override {
    throw StaleTensor("memory taken straight from the device is never given up");
  }
  bool may_give_up() const noexcept override { return false; }
};

DeviceMemoryOwner& device_memory_owner() {
  static DeviceMemoryOwner* const owner = new DeviceMemoryOwner;  // outlives every static tensor
  return *owner;
}

StorageRef allocate_from_device(Device device, std::size_t bytes) {
  DeviceAPI& api = device_api(device);
  void* data = bytes == 0 ? nullptr : allocate_device_memory(device, bytes);
  const StreamRef legacy(api, device, StreamHandle::kLegacy);
  return StorageRef(*new Storage(device_memory_owner(), device, legacy, data, bytes));
}

}  // namespace

AllocatorScope::AllocatorScope(StorageAllocator& allocator) noexcept : previous_(t_allocator) {
  t_allocator = &allocator;
}

AllocatorScope::~AllocatorScope() {
  t_allocator = previous_;
}

StorageAllocator* current_allocator() noexcept {
  return t_allocator;
}

void note_use(const StorageRef& storage, StreamRef stream) {
  if (t_allocator != nullptr && t_allocator->keep(storage)) return;
  storage->owner().used(*storage, stream);
}

Tensor empty(const Shape& shape, DType dtype, std::optional<Device> device) {
  if (t_allocator == nullptr && !device) {
    throw InvalidArgument("empty() needs a device outside of a step function");
  }
  const Device place = device ? *device : t_allocator->device();
  const std::size_t bytes = bytes_of(shape, dtype);
  const bool from_pool = bytes > 0 && t_allocator != nullptr && t_allocator->device() == place;
  StorageRef storage =
      from_pool ? t_allocator->allocate(bytes) : allocate_from_device(place, bytes);
  const Shape dense(shape.dims());
  return Tensor(std::move(storage), 0, shape.is_contiguous() ? shape : dense, dtype);
}

}  // namespace cgtree
