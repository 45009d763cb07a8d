// empty(), from_host(), scalar() and Workspace: functions that make tensors and scratch memory.
// Inside a step function the memory comes from the context's pool, outside from the device.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "base/frame.h"
#include "interop/device/device.h"
#include "interop/tensor/storage.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// A StorageAllocator serves empty() while it is current on the thread.
class StorageAllocator {
 public:
  // Requires: bytes > 0. Throws OutOfMemory.
  virtual StorageRef allocate(std::size_t bytes) = 0;
  // The device of the memory from allocate().
  virtual Device device() const noexcept = 0;
  // Called with the memory of each new tensor that does not come from allocate(): of another
  // device, or pinned.
  virtual void made_elsewhere(const StorageRef& storage) { static_cast<void>(storage); }
  // Called when just enqueued work uses the storage, and when a caller asks for its address, which
  // work may use. Returns true if the work is being recorded; the storage is then kept as long as
  // the work may be replayed.
  virtual bool keep(const StorageRef& storage) {
    static_cast<void>(storage);
    return false;
  }

 protected:
  ~StorageAllocator() = default;
};

// An AllocatorScope makes `allocator` serve empty() on this thread until it ends. Scopes nest.
class AllocatorScope {
 public:
  // Borrows the allocator.
  explicit AllocatorScope(StorageAllocator& allocator) noexcept : scope_(&allocator) {}

 private:
  const FrameScope<&Frame::allocator> scope_;
};

// Returns null outside of every scope.
inline StorageAllocator* current_allocator() noexcept {
  return frame().allocator;
}

// Must be called after work that uses `storage` was enqueued on `stream`. The storage's owner and
// the open recording then keep the memory as long as the work needs it. Throws InvalidArgument,
// CaptureError, DeviceError and std::bad_alloc; the host has then waited for the stream, unless it
// captures, so that the memory may be reused nevertheless.
void note_use(const StorageRef& storage, StreamRef stream);

// Throws InvalidArgument if note_use() would refuse the stream. Should be called before the work is
// enqueued, so that nothing has happened if it throws.
void expect_use(const StorageRef& storage, StreamRef stream);

// Makes a tensor with uninitialized contents. Inside a step function the memory comes from the
// context's pool, unless another device is given. Outside a device is required: the memory is
// allocated from the device and freed at the last release. Throws InvalidArgument without a device
// outside of a step function; OutOfMemory.
Tensor empty(const Shape& shape, DType dtype, std::optional<Device> device = std::nullopt);

// As empty() outside of any step function, filled with `values` in row-major order.
template <typename T>
Tensor from_host(const Shape& shape, std::span<const T> values, Device device) {
  Tensor tensor = empty(shape, dtype_of<T>, device);
  tensor.copy_from(values);
  return tensor;
}
// The same for values in braces: from_host<float>({2}, {1, 2}, device).
template <typename T>
Tensor from_host(const Shape& shape, std::initializer_list<T> values, Device device) {
  return from_host(shape, std::span<const T>(values.begin(), values.size()), device);
}

// Makes a tensor on the host with a copy of the contiguous `bytes` at `data`. As an input of a
// compiled function it is passed by value: the step function gets a tensor on its own device, and
// each replay the value of its call.
Tensor by_value(const void* data, std::size_t bytes, const Shape& shape, DType dtype);

// Makes a tensor of rank 0 that passes a number by value.
template <typename T>
Tensor scalar(T value) {
  return by_value(&value, sizeof(value), Shape(), dtype_of<T>);
}

// Makes a tensor of uint8 {sizeof(T)} that passes a struct by value: small values that change at
// each step, such as lengths, block tables and sampling parameters. A kernel takes
// data<std::uint8_t>() as a T*.
template <typename T>
requires std::is_trivially_copyable_v<T> Tensor step_block(const T& value) {
  return by_value(&value, sizeof(value), Shape{sizeof(T)}, DType::kUInt8);
}

// The domain of storages whose tensors are passed by value. They are on the host.
inline constexpr StorageDomain kValueDomain;
// Requires: the tensor is defined.
inline bool is_by_value(const Tensor& tensor) noexcept {
  return tensor.storage()->domain() == &kValueDomain;
}

// A Workspace is scratch memory on a device for the length of a scope. Work enqueued on
// current_stream() during the scope may use the memory.
//
// Inside a step function of a context on `device` it is a block of the context's pool. While the
// function is recorded, the block belongs to the recording: only recordings of the same context,
// whose replays never overlap, may share it. Its contents are undefined. Outside, it is the
// device's own workspace (DeviceAPI::alloc_workspace()), and the end of the scope may wait for the
// device.
class Workspace {
 public:
  // Allocates nothing for 0 bytes. Throws OutOfMemory; InvalidArgument for a device that does not
  // exist, and, while current_stream() captures, for memory that would be freed before the graph is
  // launched: memory of another device than the step function's, or any outside of a step function.
  Workspace(Device device, std::size_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // The address on the device; null for 0 bytes.
  void* data() const noexcept { return data_; }
  // The requested size; the memory may be larger.
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  const Device device_;
  const std::size_t bytes_;
  StorageRef block_;  // null: the memory is the device's own workspace
  void* data_ = nullptr;
};

// A LibraryWorkspace makes a handle of a library use a Workspace for the length of a scope. The
// workspace of cuBLAS belongs to a stream: graphs that are launched on two streams share it.
//
//   const LibraryWorkspace workspace(device, 32 << 20, [=](void* data, std::size_t bytes) {
//     (void)cublasSetWorkspace(handle, data, bytes);  // after cublasSetStream(), which resets it
//   });
//
// The end of the scope calls the function with null and 0; this call must not throw.
template <typename Set>
class LibraryWorkspace {
 public:
  // Throws as Workspace does, and exceptions of the function.
  LibraryWorkspace(Device device, std::size_t bytes, Set set)
      : memory_(device, bytes), set_(std::move(set)) {
    set_(memory_.data(), memory_.bytes());
  }
  ~LibraryWorkspace() { set_(static_cast<void*>(nullptr), std::size_t{0}); }
  LibraryWorkspace(const LibraryWorkspace&) = delete;
  LibraryWorkspace& operator=(const LibraryWorkspace&) = delete;

 private:
  const Workspace memory_;
  Set set_;
};

}  // namespace cgtree
