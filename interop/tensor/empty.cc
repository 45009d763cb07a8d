// empty(), scalars, workspaces, and the owners of storages made outside of step functions.
#include "interop/tensor/empty.h"

#include <cstring>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log_event.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/device/stream.h"
#include "interop/tensor/outside_of_steps.h"

namespace cgtree {
namespace {

// Owns storages whose memory was allocated directly from a device. It has no state: one object
// serves all.
class DeviceMemoryOwner final : public StorageOwner {
 public:
  void release(Storage& storage) noexcept override {
    free_device_memory(storage.device(), reinterpret_cast<void*>(storage.address()));
    delete &storage;
  }
};

DeviceMemoryOwner& device_memory_owner() {
  static DeviceMemoryOwner* const owner = new DeviceMemoryOwner;  // outlives every static tensor
  return *owner;
}

StorageRef allocate_from_device(Device device, std::size_t bytes) {
  DeviceAPI& api = device_api(device);
  const auto free = [device](void* data) { free_device_memory(device, data); };
  std::unique_ptr<void, decltype(free)> data(
      bytes == 0 ? nullptr : allocate_device_memory(device, bytes), free);
  const StreamRef legacy(api, device, StreamHandle::kLegacy);
  auto* const made = new Storage(device_memory_owner(), device, legacy, data.get(), bytes);
  (void)data.release();
  made->keep_valid();
  return StorageRef(*made);
}

}  // namespace

namespace {

// Waits for enqueued work whose use could not be noted.
void wait_for_work(StreamRef stream) noexcept {
  try {
    if (!stream.is_capturing()) stream.synchronize();
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "use_not_waited_for error=\"{}\"", error.what());
  }
}

// Returns whether work on the stream runs now, and not as part of a graph. The default streams are
// not queried, because that breaks captures of others; no graph contains work on them.
bool runs_now(StreamRef stream) {
  return !stream.is_default() && !stream.is_capturing();
}

}  // namespace

void note_use(const StorageRef& storage, StreamRef stream) {
  StorageAllocator* const allocator = current_allocator();
  if (allocator != nullptr && allocator->keep(storage) && !runs_now(stream)) return;
  try {
    storage->owner().used(*storage, stream);
  } catch (...) {
    wait_for_work(stream);
    throw;
  }
}

void expect_use(const StorageRef& storage, StreamRef stream) {
  storage->owner().expect_use(*storage, stream);
}

Tensor empty(const Shape& shape, DType dtype, std::optional<Device> device) {
  StorageAllocator* const allocator = current_allocator();
  if (allocator == nullptr && !device) {
    throw InvalidArgument(
        "empty() outside of a step function needs a device: empty(shape, dtype, "
        "context.device())");
  }
  const Device place = device ? *device : allocator->device();
  const std::size_t bytes = bytes_of(shape, dtype);
  const bool from_pool = bytes > 0 && allocator != nullptr && allocator->device() == place;
  StorageRef storage = from_pool ? allocator->allocate(bytes) : allocate_from_device(place, bytes);
  if (!from_pool && bytes > 0 && allocator != nullptr) allocator->made_elsewhere(storage);
  const Shape dense(shape.dims());
  return Tensor(std::move(storage), 0, shape.is_contiguous() ? shape : dense, dtype);
}

namespace {

struct ValueStorage : Storage {
  ValueStorage(StorageOwner& owner, std::size_t bytes)
      : ValueStorage(owner, bytes, bytes > sizeof(word) ? new std::byte[bytes] : nullptr) {}
  ValueStorage(StorageOwner& owner, std::size_t bytes, std::byte* allocated)
      : Storage(owner, Device::host(), StreamRef(),
                allocated != nullptr ? allocated : static_cast<void*>(&word), bytes, &kValueDomain),
        large(allocated) {}

  std::uint64_t word = 0;  // the value, if it fits
  const std::unique_ptr<std::byte[]> large;
};

// Owns values. It has no state: one object serves all.
class ValueOwner final : public StorageOwner {
 public:
  void release(Storage& storage) noexcept override { delete static_cast<ValueStorage*>(&storage); }
  StreamRef stream(const Storage&) const noexcept override {
    DeviceAPI* const host = find_device_api(DeviceType::kHost);
    return host == nullptr ? StreamRef() : StreamRef(*host, Device::host(), StreamHandle::kLegacy);
  }
};

ValueOwner& value_owner() {
  static ValueOwner* const owner = new ValueOwner;  // outlives every static tensor
  return *owner;
}

}  // namespace

Tensor by_value(const void* data, std::size_t bytes, const Shape& shape, DType dtype) {
  CGTREE_CHECK(shape.is_contiguous() && bytes == bytes_of(shape, dtype));
  auto* const made = new ValueStorage(value_owner(), bytes);
  Tensor tensor(StorageRef(*made), 0, shape, dtype);
  if (bytes > 0) std::memcpy(reinterpret_cast<void*>(tensor.address()), data, bytes);
  return tensor;
}

namespace {

// A captured kernel would use the workspace at each launch, but the scope's end frees it.
void expect_nothing_recorded(Device device, std::size_t bytes) {
  const StreamRef stream = current_stream_or_none();
  if (!stream.is_capturing()) return;
  throw InvalidArgument(str_format(
      "a workspace of {} bytes on {} while {} captures: no recording would keep it until it is "
      "replayed; inside a step function use its own device, elsewhere make a tensor that lives as "
      "long as the graph",
      bytes, to_string(device), to_string(stream.device())));
}

}  // namespace

Workspace::Workspace(Device device, std::size_t bytes) : device_(device), bytes_(bytes) {
  if (bytes == 0) return;
  StorageAllocator* const allocator = current_allocator();
  if (allocator != nullptr && allocator->device() == device) {
    block_ = allocator->allocate(bytes);
    data_ = block_->data();
  } else {
    expect_nothing_recorded(device, bytes);
    data_ = allocate_workspace_memory(device, bytes);
  }
}

Workspace::~Workspace() {
  if (!block_) free_workspace_memory(device_, data_);
}

}  // namespace cgtree
