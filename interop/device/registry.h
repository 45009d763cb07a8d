// The registry: from a kind of device to the DeviceAPI that serves it.
//
// The host device is always there; the cuda device is there when built with CUDA (whether a GPU
// is there too, its attribute kExists says). Others can be registered.
#pragma once

#include <string_view>

#include "interop/device/device.h"
#include "interop/device/device_api.h"

namespace cgtree {

// Null if no DeviceAPI serves this kind of device.
DeviceAPI* find_device_api(DeviceType type) noexcept;

// By name: "host", "cpu" (TVM's word for it), "cuda", or the name() of a user's; the first one of
// that name. With or without "device_api." in front, which is TVM's key of it.
DeviceAPI* find_device_api(std::string_view name) noexcept;
// As above; throws InvalidArgument that lists the names there are.
DeviceAPI& device_api(std::string_view name);

// As above; throws InvalidArgument that lists what is there, and says so when the device itself
// does not exist.
DeviceAPI& device_api(Device device);

// Lets `api` serve a kind of device of the caller's own, numbered from kFirstUserType on; `api`
// must live as long as the process. Throws InvalidArgument for a number that is reserved, is out of
// range (there is room for 16 kinds) or is taken. Any thread.
void register_device_api(DeviceType type, DeviceAPI& api);

// Parses "auto" (Device::best()), a name as above, or one with a number: "cuda", "cuda:1". Throws
// InvalidArgument that lists the names.
Device parse_device(std::string_view text);

}  // namespace cgtree
