// The registry: from a kind of device to the DeviceAPI that serves it.
//
// The host device is always there; the cuda device is there when built with CUDA (whether a GPU
// is there too, its attribute kExists says). Others can be registered.
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

// Lets `api` serve a kind of device of the caller's own, numbered from kFirstUserType on; `api`
// must live as long as the process. Throws InvalidArgument for a number that is reserved, is out of
// range (there is room for 16 kinds) or is taken. Any thread.
void register_device_api(DeviceType type, DeviceAPI& api);

// Parses "host", "cpu", "cuda", "cuda:1", "auto" (Device::best()). Throws InvalidArgument.
Device parse_device(std::string_view text);

}  // namespace cgtree
