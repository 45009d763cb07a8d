// The cuda device: DeviceAPI and GraphAPI as a thin shim over the CUDA runtime.
#pragma once

#include "interop/device/device_api.h"

namespace cgtree {

// Returns the process's cuda device, which lives as long as the process. Without a driver every
// function returns kInsufficientDriver or kNoDevice, and kExists is 0.
DeviceAPI& cuda_device_api() noexcept;

}  // namespace cgtree
