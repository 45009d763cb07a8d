// The registry: from a kind of device to the DeviceAPI that serves it.
//
// The host device is always there; the cuda device is there when built with CUDA (whether a GPU
// is there too, its attribute kExists says).
#pragma once

#include <string_view>

#include "interop/device.h"
#include "interop/device_api.h"

namespace cgtree {

// Null if no DeviceAPI serves this kind of device.
DeviceAPI* find_device_api(DeviceType type) noexcept;

// As above; throws InvalidArgument that lists what is there, and says so when the device itself
// does not exist.
DeviceAPI& device_api(Device device);

// Parses "host", "cpu", "cuda", "cuda:1", "auto" (Device::best()). Throws InvalidArgument.
Device parse_device(std::string_view text);

}  // namespace cgtree
