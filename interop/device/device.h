// Device: a value that names a device; the registry, from a kind of device to its DeviceAPI; and
// memory allocated directly from a device.
//
// The host device is always registered. The cuda device is registered if the library is built with
// CUDA; its attribute kExists says whether there is a GPU, too. Users can register others.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cgtree {

class DeviceAPI;  // interop/device/device_api.h

// The numbers are DLPack's (DLDeviceType). Types registered by a user start at kFirstUserType.
enum class DeviceType : std::int32_t { kHost = 1, kCuda = 2, kFirstUserType = 64 };

// A Device names a device, which need not exist.
struct Device {
  DeviceType type = DeviceType::kHost;
  std::int32_t id = 0;

  // Returns the first GPU if this program can use it, otherwise the embedded host device: the log
  // then gives the reason, once. Never throws.
  static Device best() noexcept;
  // The next two name a device by its number among those of its kind.
  static Device host(std::int32_t id = 0) noexcept { return {DeviceType::kHost, id}; }
  static Device cuda(std::int32_t id = 0) noexcept { return {DeviceType::kCuda, id}; }

  auto operator<=>(const Device&) const = default;
};

// Returns "host:0", "cuda:1" and so on.
std::string to_string(Device device);

// Returns null if no DeviceAPI serves this kind of device.
DeviceAPI* find_device_api(DeviceType type) noexcept;

// As above, by name: "host", "cpu" (TVM's word for it), "cuda", or the name() of a user's device;
// the first one of that name. The prefix "device_api.", which TVM's keys have, is ignored.
DeviceAPI* find_device_api(std::string_view name) noexcept;
// As above. Throws InvalidArgument that lists the known names if the name is unknown.
DeviceAPI& device_api(std::string_view name);

// Returns the DeviceAPI that serves `device`. Throws InvalidArgument if no DeviceAPI serves its
// kind, or if the device itself does not exist.
DeviceAPI& device_api(Device device);

// Makes `api` serve a kind of device of the caller's, numbered from kFirstUserType on. Requires
// that `api` lives as long as the process. Throws InvalidArgument for a number that is reserved,
// out of range (there is room for 16 kinds) or taken. Thread safety: any thread.
void register_device_api(DeviceType type, DeviceAPI& api);

// Parses "auto" (Device::best()), a name as above, or a name with a number: "cuda", "cuda:1".
// Throws InvalidArgument that lists the known names.
Device parse_device(std::string_view text);

// Memory allocated directly from a device may be allocated and freed while captures are open.

// Requires: bytes > 0. Throws OutOfMemory that names the device, the request and the free memory;
// InvalidArgument if the device does not exist.
void* allocate_device_memory(Device device, std::size_t bytes);

// Never throws: an error is logged, and the memory is leaked.
void free_device_memory(Device device, void* data) noexcept;

// As above, for the workspace of a device (DeviceAPI::alloc_workspace()).
void* allocate_workspace_memory(Device device, std::size_t bytes);
// Requires: the memory is from allocate_workspace_memory() on this device. Never throws.
void free_workspace_memory(Device device, void* data) noexcept;

// As above, for host memory that the device copies from and to without a staging buffer.
void* allocate_pinned_memory(Device device, std::size_t bytes);
// Requires: the memory was allocated by the function above, for this device. Never throws.
void free_pinned_memory(Device device, void* data) noexcept;

// Returns the device that `data` lies on. It has the type of `first`, which `api` serves. Memory
// that every device of the type reaches (pinned, managed) lies on `first`; so does all memory if
// the device cannot tell. Throws BoundaryError for memory that the type's devices cannot reach and,
// if `first` is wanted, for memory of another device. May be called while a capture is open.
Device locate(DeviceAPI& api, Device first, const void* data, bool is_wanted);

}  // namespace cgtree
