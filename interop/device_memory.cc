// Device memory under a relaxed capture mode.
#include "interop/device_memory.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "interop/registry.h"
#include "interop/relaxed_capture.h"

namespace cgtree {
namespace {

std::int64_t bytes_free(DeviceAPI& api, int id) {
  const AttributeValue value = api.attribute(id, DeviceAttribute::kFreeMemory);
  const auto* number = std::get_if<std::int64_t>(&value);
  return number == nullptr ? -1 : *number;
}

}  // namespace

void* allocate_device_memory(Device device, std::size_t bytes) {
  DeviceAPI& api = device_api(device);
  void* data = nullptr;
  Code code = Code::kSuccess;
  {
    RelaxedCapture relaxed(api.graphs());
    code = api.alloc_data_space(device.id, bytes, &data);
  }
  if (code == Code::kMemoryAllocation) {
    if (api.graphs() != nullptr) (void)api.graphs()->take_last_error();
    throw OutOfMemory(fmt::format("{} bytes asked of {}, about {} free", bytes, to_string(device),
                                  bytes_free(api, device.id)));
  }
  check(code, fmt::format("allocate {} bytes on {}", bytes, to_string(device)));
  return data;
}

void free_device_memory(Device device, void* data) noexcept {
  DeviceAPI* api = find_device_api(device.type);
  if (api == nullptr || data == nullptr) return;
  RelaxedCapture relaxed(api->graphs());
  const Code code = api->free_data_space(device.id, data);
  if (!ok(code)) {
    log_event(LogLevel::kError, "memory_lost device={} error={}", to_string(device), name(code));
  }
}

}  // namespace cgtree
