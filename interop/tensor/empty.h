// empty(): makes tensors, from the pool inside a step function, from the device outside.
#pragma once

#include <optional>
#include <span>

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

}  // namespace cgtree
