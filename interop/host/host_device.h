// The embedded host device: streams, events, capture and graphs with CUDA's rules and numbers, no
// GPU.
#pragma once

#include "interop/device_api.h"

namespace cgtree {

// The process's host device; it lives as long as the process.
DeviceAPI& host_device_api() noexcept;

}  // namespace cgtree
