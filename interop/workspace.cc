// Asks the step's allocator, else the device.
#include "interop/workspace.h"

#include "interop/device_memory.h"
#include "interop/empty.h"

namespace cgtree {

Workspace::Workspace(Device device, std::size_t bytes) : device_(device), bytes_(bytes) {
  if (bytes == 0) return;
  StorageAllocator* const allocator = current_allocator();
  if (allocator != nullptr && allocator->device() == device) {
    block_ = allocator->allocate(bytes);
    data_ = block_->data();
  } else {
    data_ = allocate_workspace_memory(device, bytes);
  }
}

Workspace::~Workspace() {
  if (!block_) free_workspace_memory(device_, data_);
}

}  // namespace cgtree
