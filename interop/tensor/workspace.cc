// Asks the step's allocator, else the device.
#include "interop/tensor/workspace.h"

#include <fmt/format.h>

#include "base/error.h"
#include "interop/device/current_stream.h"
#include "interop/device/device_memory.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

// What a capture has seen of it would be used at each launch, and it goes with the scope.
void expect_nothing_recorded(Device device, std::size_t bytes) {
  const StreamRef stream = current_stream_or_none();
  if (!stream.is_capturing()) return;
  throw InvalidArgument(fmt::format(
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
