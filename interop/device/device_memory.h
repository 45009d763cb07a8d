// Memory straight from a device, taken and returned safely while captures are open.
#pragma once

#include <cstddef>

#include "interop/device/device.h"

namespace cgtree {

// Throws OutOfMemory that names the device, the request and what is free. Requires bytes > 0.
void* allocate_device_memory(Device device, std::size_t bytes);

// Never throws: a refusal is logged, and the memory is lost.
void free_device_memory(Device device, void* data) noexcept;

// The same for a device's workspace.
void* allocate_workspace_memory(Device device, std::size_t bytes);
void free_workspace_memory(Device device, void* data) noexcept;

// The same for host memory that the device copies from and to without a staging buffer.
void* allocate_pinned_memory(Device device, std::size_t bytes);
void free_pinned_memory(Device device, void* data) noexcept;

}  // namespace cgtree
