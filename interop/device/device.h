// Device: which device something lives on, as a value.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace cgtree {

// DLPack's numbers (DLDeviceType). Types registered by a user start at kFirstUserType.
enum class DeviceType : std::int32_t { kHost = 1, kCuda = 2, kFirstUserType = 64 };

struct Device {
  DeviceType type = DeviceType::kHost;
  std::int32_t id = 0;

  // The first GPU if a driver and a GPU are there, else the embedded host device. Never throws.
  static Device best() noexcept;
  static Device host(std::int32_t id = 0) noexcept { return {DeviceType::kHost, id}; }
  static Device cuda(std::int32_t id = 0) noexcept { return {DeviceType::kCuda, id}; }

  auto operator<=>(const Device&) const = default;
};

// "host:0", "cuda:1".
std::string to_string(Device device);

}  // namespace cgtree
