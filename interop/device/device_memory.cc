// Allocates and frees in relaxed capture mode.
#include "interop/device/device_memory.h"

#include <fmt/format.h>

#include <string>

#include "base/error.h"
#include "base/log.h"
#include "interop/device/device.h"
#include "interop/device/graph_api.h"

namespace cgtree {
namespace {

std::int64_t bytes_free(DeviceAPI& api, int id) {
  const AttributeValue value = api.attribute(id, DeviceAttribute::kFreeMemory);
  const auto* number = std::get_if<std::int64_t>(&value);
  return number == nullptr ? -1 : *number;
}

// Returns what allocate() wrote. Throws OutOfMemory with the text of room() if memory is exhausted.
template <typename Allocate, typename Room>
void* take(DeviceAPI& api, const std::string& what, Room room, Allocate allocate) {
  void* data = nullptr;
  Code code = Code::kSuccess;
  {
    RelaxedCapture relaxed(api.graphs());
    code = allocate(&data);
  }
  if (code == Code::kMemoryAllocation) {
    if (api.graphs() != nullptr) (void)api.graphs()->take_last_error();
    throw OutOfMemory(fmt::format("{}, {}", what, room()));
  }
  check(code, what);
  return data;
}

template <typename Free>
void give_back(Device device, void* data, Free free) noexcept {
  DeviceAPI* const api = find_device_api(device.type);
  if (api == nullptr || data == nullptr) return;
  RelaxedCapture relaxed(api->graphs());
  const Code code = free(*api);
  if (!ok(code)) {
    log_event(LogLevel::kError, "memory_lost device={} error={}", to_string(device), name(code));
  }
}

}  // namespace

void* allocate_device_memory(Device device, std::size_t bytes) {
  DeviceAPI& api = device_api(device);
  return take(
      api, fmt::format("{} bytes asked of {}", bytes, to_string(device)),
      [&] { return fmt::format("about {} free", bytes_free(api, device.id)); },
      [&](void** data) { return api.alloc_data_space(device.id, bytes, data); });
}

void free_device_memory(Device device, void* data) noexcept {
  give_back(device, data, [&](DeviceAPI& api) { return api.free_data_space(device.id, data); });
}

void* allocate_workspace_memory(Device device, std::size_t bytes) {
  DeviceAPI& api = device_api(device);
  return take(
      api, fmt::format("a workspace of {} bytes asked of {}", bytes, to_string(device)),
      [&] { return fmt::format("about {} free", bytes_free(api, device.id)); },
      [&](void** data) { return api.alloc_workspace(device.id, bytes, data); });
}

void free_workspace_memory(Device device, void* data) noexcept {
  give_back(device, data, [&](DeviceAPI& api) { return api.free_workspace(device.id, data); });
}

void* allocate_pinned_memory(Device device, std::size_t bytes) {
  DeviceAPI& api = device_api(device);
  return take(
      api, fmt::format("{} bytes of pinned memory asked of {}", bytes, to_string(device)),
      [] { return "more than the host has"; },
      [&](void** data) { return api.alloc_pinned(bytes, data); });
}

void free_pinned_memory(Device device, void* data) noexcept {
  give_back(device, data, [&](DeviceAPI& api) { return api.free_pinned(data); });
}

}  // namespace cgtree
