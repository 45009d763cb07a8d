// empty(): makes tensors, from the pool inside a step function, from the device outside.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "interop/device/device.h"
#include "interop/tensor/storage.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// Gives storages; what `empty()` asks while one is current on the thread.
class StorageAllocator {
 public:
  // Requires bytes > 0. Throws OutOfMemory.
  virtual StorageRef allocate(std::size_t bytes) = 0;
  virtual Device device() const noexcept = 0;
  // Work that was just enqueued uses the storage. True when that work is being recorded: then the
  // storage is kept as long as it may be replayed.
  virtual bool keep(const StorageRef& storage) {
    static_cast<void>(storage);
    return false;
  }

 protected:
  ~StorageAllocator() = default;
};

// Makes `allocator` answer empty() on this thread until the scope ends. Scopes nest.
class AllocatorScope {
 public:
  explicit AllocatorScope(StorageAllocator& allocator) noexcept;
  ~AllocatorScope();
  AllocatorScope(const AllocatorScope&) = delete;
  AllocatorScope& operator=(const AllocatorScope&) = delete;

 private:
  StorageAllocator* previous_;
};

// Null outside of every scope.
StorageAllocator* current_allocator() noexcept;

// To be called after enqueuing work on `stream` that uses `storage`: its owner, and the step
// function being recorded, then keep the memory as long as it takes.
void note_use(const StorageRef& storage, StreamRef stream);

// A tensor whose contents are not set. Inside a step function it comes from the context's pool.
// Outside, give a device: its memory is then taken from the device and returned at the last
// release. Throws InvalidArgument (no device outside a step function), OutOfMemory.
Tensor empty(const Shape& shape, DType dtype, std::optional<Device> device = std::nullopt);

// As empty() outside of any step function, filled with `values` (row-major).
template <typename T>
Tensor from_host(const Shape& shape, std::span<const T> values, Device device) {
  Tensor tensor = empty(shape, dtype_of<T>, device);
  tensor.copy_from(values);
  return tensor;
}

// A tensor of rank 0 on the host that holds the `bytes` bytes (at most 8) at `value`.
Tensor scalar_of(DType dtype, const void* value, std::size_t bytes);

// A tensor of rank 0 on the host. As an input of a compiled function of another device, its value
// rides along with the call, and the step function sees a tensor of rank 0 on its own device.
template <typename T>
Tensor scalar(T value) {
  return scalar_of(dtype_of<T>, &value, sizeof(value));
}

// Whether scalar() has made it; then its value may be read at any time.
bool is_scalar(const Tensor& tensor) noexcept;

// The bytes of a scalar, and zeros up to eight.
std::uint64_t scalar_word(const Tensor& scalar) noexcept;

// Inside a step function of a context on `device`, a block of the context's pool; while the
// function is recorded, of the recording's, which no other recording is given while it may be
// replayed: the pool grows by other memory, and frees none that a recording uses. Elsewhere the
// device's own workspace (DeviceAPI::alloc_workspace); its end may then wait for the device.
//
// The memory may be used by what is enqueued on current_stream() while the scope lasts.
class Workspace {
 public:
  // No memory for 0 bytes. Throws OutOfMemory; InvalidArgument for a device that does not exist,
  // and while current_stream() captures, for memory that would be gone when the graph is launched:
  // another device's than the step function's, or any outside of a step function.
  Workspace(Device device, std::size_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  const Device device_;
  const std::size_t bytes_;
  StorageRef block_;  // of a pool; else the memory is the device's
  void* data_ = nullptr;
};

}  // namespace cgtree
