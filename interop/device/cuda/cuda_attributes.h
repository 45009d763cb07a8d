// The attributes of a GPU.
#pragma once

#include "interop/device/device_api.h"

namespace cgtree::cuda {

// As DeviceAPI::attribute(). Leaves the thread's current device and last error as they were.
AttributeValue attribute(int id, DeviceAttribute attribute) noexcept;

}  // namespace cgtree::cuda
