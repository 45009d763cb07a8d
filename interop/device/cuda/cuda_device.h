// The cuda device: DeviceAPI and GraphAPI as a thin shim over the CUDA runtime.
#pragma once

#include "interop/device/device_api.h"

namespace cgtree {

// The process's cuda device; it lives as long as the process. Usable without a driver: every verb
// then answers kInsufficientDriver or kNoDevice, and kExists is 0.
DeviceAPI& cuda_device_api() noexcept;

}  // namespace cgtree
