// Which DeviceAPI serves which kind of device.
#include "interop/registry.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "interop/host/host_device.h"
#ifdef CGTREE_WITH_CUDA
#include "interop/cuda/cuda_device.h"
#endif

namespace cgtree {
namespace {

bool exists(DeviceAPI& api, int id) noexcept {
  const AttributeValue value = api.attribute(id, DeviceAttribute::kExists);
  const auto* number = std::get_if<std::int64_t>(&value);
  return number != nullptr && *number != 0;
}

}  // namespace

DeviceAPI* find_device_api(DeviceType type) noexcept {
  if (type == DeviceType::kHost) return &host_device_api();
#ifdef CGTREE_WITH_CUDA
  if (type == DeviceType::kCuda) return &cuda_device_api();
#endif
  return nullptr;
}

DeviceAPI& device_api(Device device) {
  DeviceAPI* api = find_device_api(device.type);
  if (api == nullptr) {
    throw InvalidArgument(fmt::format(
        "device {} is not enabled: this program was built without CUDA; use the host device",
        to_string(device)));
  }
  if (!exists(*api, device.id)) {
    throw InvalidArgument(fmt::format(
        "device {} does not exist: no such GPU, no driver, or a driver too old for this program",
        to_string(device)));
  }
  return *api;
}

Device Device::best() noexcept {
  DeviceAPI* cuda = find_device_api(DeviceType::kCuda);
  return cuda != nullptr && exists(*cuda, 0) ? Device::cuda(0) : Device::host(0);
}

Device parse_device(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  int id = 0;
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
    if (error != std::errc() || end != digits.data() + digits.size() || id < 0) {
      throw InvalidArgument(fmt::format("device '{}': '{}' is not a device number", text, digits));
    }
  }
  if (text == "auto") return Device::best();
  if (kind == "host" || kind == "cpu") return Device::host(id);
  if (kind == "cuda") return Device::cuda(id);
  throw InvalidArgument(
      fmt::format("device '{}' is unknown; known are auto, host, cuda and cuda:N", text));
}

std::string to_string(Device device) {
  switch (device.type) {
    case DeviceType::kHost:
      return fmt::format("host:{}", device.id);
    case DeviceType::kCuda:
      return fmt::format("cuda:{}", device.id);
    default:
      return fmt::format("device type {}:{}", static_cast<int>(device.type), device.id);
  }
}

}  // namespace cgtree
