// Memory allocated directly from a device. It may be allocated and freed while captures are open.
#pragma once

#include <cstddef>

#include "interop/device/device.h"

namespace cgtree {

// Requires: bytes > 0. Throws OutOfMemory that names the device, the request and what is free;
// InvalidArgument if the device does not exist.
void* allocate_device_memory(Device device, std::size_t bytes);

// Never throws: an error is logged, and the memory is leaked.
void free_device_memory(Device device, void* data) noexcept;

// As above, for the workspace of a device (DeviceAPI::alloc_workspace()).
void* allocate_workspace_memory(Device device, std::size_t bytes);
void free_workspace_memory(Device device, void* data) noexcept;

// As above, for host memory that the device copies from and to without a staging buffer.
void* allocate_pinned_memory(Device device, std::size_t bytes);
void free_pinned_memory(Device device, void* data) noexcept;

}  // namespace cgtree
