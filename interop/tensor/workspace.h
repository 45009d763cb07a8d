// Workspace: scratch memory on a device for the length of a scope.
#pragma once

#include <cstddef>

#include "interop/device/device.h"
#include "interop/tensor/storage.h"

namespace cgtree {

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
