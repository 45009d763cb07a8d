// The registry of devices, the names of devices, and their memory, which is allocated and freed in
// relaxed capture mode.
#include "interop/device/device.h"

#include <atomic>
#include <charconv>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/format.h"
#include "base/log_event.h"
#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"
#ifndef CGTREE_WITHOUT_HOST_DEVICE
#include "simulator/host_device.h"
#endif
#ifdef CGTREE_WITH_CUDA
#include "interop/device/cuda/cuda_device.h"
#endif

namespace cgtree {
namespace {

// The devices of users. Constant-initialised, to exist before any constructor runs.
constexpr int kUserTypes = 16;
std::atomic<DeviceAPI*> user_apis[kUserTypes] = {};

// Returns null for a number outside the range for users.
std::atomic<DeviceAPI*>* user_api(DeviceType type) noexcept {
  const int number = static_cast<int>(type) - static_cast<int>(DeviceType::kFirstUserType);
  return number >= 0 && number < kUserTypes ? &user_apis[number] : nullptr;
}

constexpr std::string_view kPrefix = "device_api.";

// Returns the type of a name, enabled or not; nothing if the name is unknown.
std::optional<DeviceType> type_of(std::string_view name) noexcept {
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  if (name == "host" || name == "cpu") return DeviceType::kHost;
  if (name == "cuda") return DeviceType::kCuda;
  for (int i = 0; i < kUserTypes; ++i) {
    DeviceAPI* const api = user_apis[i].load(std::memory_order_acquire);
    if (api != nullptr && api->name() == name) {
      return static_cast<DeviceType>(static_cast<int>(DeviceType::kFirstUserType) + i);
    }
  }
  return std::nullopt;
}

// Returns "host, cuda", and the names of users' devices.
std::string enabled_names() {
  std::string names = "host";
  if (find_device_api(DeviceType::kCuda) != nullptr) names += ", cuda";
  for (const std::atomic<DeviceAPI*>& entry : user_apis) {
    const DeviceAPI* const api = entry.load(std::memory_order_acquire);
    if (api != nullptr) names += str_format(", {}", api->name());
  }
  return names;
}

// Logs once, because empty() and imports of arrays ask for the best device at each call. A machine
// with a driver was probably meant to use it.
void log_chosen_host(DeviceAPI& cuda) noexcept {
  static std::atomic<bool> is_logged = false;
  if (is_logged.load(std::memory_order_relaxed)) return;
  const bool has_driver = cuda.attribute(0, DeviceAttribute::kDriverVersion) != AttributeValue(0);
  const LogLevel level = has_driver ? LogLevel::kWarn : LogLevel::kInfo;
  if (!log_enabled(level) || is_logged.exchange(true)) return;
  try {
    log_event(level, "host_device_chosen reason=\"{}\"", cuda.why_absent(0));
  } catch (...) {
    log_line(level, "host_device_chosen");
  }
}

}  // namespace

DeviceAPI* find_device_api(DeviceType type) noexcept {
#ifndef CGTREE_WITHOUT_HOST_DEVICE
  if (type == DeviceType::kHost) return &host_device_api();
#endif
#ifdef CGTREE_WITH_CUDA
  if (type == DeviceType::kCuda) return &cuda_device_api();
#endif
  const auto* const registered = user_api(type);
  return registered != nullptr ? registered->load(std::memory_order_acquire) : nullptr;
}

DeviceAPI* find_device_api(std::string_view name) noexcept {
  const std::optional<DeviceType> type = type_of(name);
  return type ? find_device_api(*type) : nullptr;
}

DeviceAPI& device_api(std::string_view name) {
  if (DeviceAPI* const api = find_device_api(name)) return *api;
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  throw InvalidArgument(
      str_format("device API '{}' is {}; there are {}", name,
                 type_of(name) ? "not enabled: this program was built without CUDA" : "unknown",
                 enabled_names()));
}

void register_device_api(DeviceType type, DeviceAPI& api) {
  auto* const entry = user_api(type);
  if (entry == nullptr) {
    const int first = static_cast<int>(DeviceType::kFirstUserType);
    throw InvalidArgument(str_format("device type {} cannot be registered: use {} to {}",
                                     static_cast<int>(type), first, first + kUserTypes - 1));
  }
  DeviceAPI* none = nullptr;
  if (!entry->compare_exchange_strong(none, &api, std::memory_order_acq_rel)) {
    throw InvalidArgument(str_format("device type {} is taken by '{}': use another number for '{}'",
                                     static_cast<int>(type), none->name(), api.name()));
  }
}

DeviceAPI& device_api(Device device) {
  DeviceAPI* api = find_device_api(device.type);
  if (api == nullptr) [[unlikely]] {
    throw InvalidArgument(str_format(
        "device {} is not enabled: this program was {}; use the host device", to_string(device),
        device.type == DeviceType::kCuda ? "built without CUDA" : "given none of this kind"));
  }
  if (!api->has_device(device.id)) [[unlikely]] {
    throw InvalidArgument(
        str_format("device {} cannot be used: {}", to_string(device), api->why_absent(device.id)));
  }
  return *api;
}

Device Device::best() noexcept {
  DeviceAPI* const cuda = find_device_api(DeviceType::kCuda);
  if (cuda == nullptr) return Device::host(0);
  if (cuda->has_device(0)) return Device::cuda(0);
  log_chosen_host(*cuda);
  return Device::host(0);
}

Device parse_device(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  int id = 0;
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
    if (error != std::errc() || end != digits.data() + digits.size() || id < 0) {
      throw InvalidArgument(str_format("device '{}': '{}' is not a device number", text, digits));
    }
  }
  if (text == "auto") return Device::best();
  if (const std::optional<DeviceType> type = type_of(kind)) return {*type, id};
  throw InvalidArgument(
      str_format("device '{}' is unknown; there are auto, {}, and cuda:1 and the like", text,
                 enabled_names()));
}

std::string to_string(Device device) {
  switch (device.type) {
    case DeviceType::kHost:
      return str_format("host:{}", device.id);
    case DeviceType::kCuda:
      return str_format("cuda:{}", device.id);
    default:
      if (DeviceAPI* const api = find_device_api(device.type)) {
        return str_format("{}:{}", api->name(), device.id);
      }
      return str_format("device type {}:{}", static_cast<int>(device.type), device.id);
  }
}

namespace {

std::int64_t bytes_free(DeviceAPI& api, int id) {
  const AttributeValue value = api.attribute(id, DeviceAttribute::kFreeMemory);
  const auto* number = std::get_if<std::int64_t>(&value);
  return number == nullptr ? -1 : *number;
}

// Returns the result of allocate(). Throws OutOfMemory with the text of room() if memory is
// exhausted.
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
    throw OutOfMemory(str_format("{}, {}", what, room()));
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
      api, str_format("{} bytes asked of {}", bytes, to_string(device)),
      [&] { return str_format("about {} free", bytes_free(api, device.id)); },
      [&](void** data) { return api.alloc_data_space(device.id, bytes, data); });
}

void free_device_memory(Device device, void* data) noexcept {
  give_back(device, data, [&](DeviceAPI& api) { return api.free_data_space(device.id, data); });
}

void* allocate_workspace_memory(Device device, std::size_t bytes) {
  DeviceAPI& api = device_api(device);
  return take(
      api, str_format("a workspace of {} bytes asked of {}", bytes, to_string(device)),
      [&] { return str_format("about {} free", bytes_free(api, device.id)); },
      [&](void** data) { return api.alloc_workspace(device.id, bytes, data); });
}

void free_workspace_memory(Device device, void* data) noexcept {
  give_back(device, data, [&](DeviceAPI& api) { return api.free_workspace(device.id, data); });
}

void* allocate_pinned_memory(Device device, std::size_t bytes) {
  DeviceAPI& api = device_api(device);
  return take(
      api, str_format("{} bytes of pinned memory asked of {}", bytes, to_string(device)),
      [] { return "more than the host has"; },
      [&](void** data) { return api.alloc_pinned(bytes, data); });
}

void free_pinned_memory(Device device, void* data) noexcept {
  give_back(device, data, [&](DeviceAPI& api) { return api.free_pinned(data); });
}

Device locate(DeviceAPI& api, Device first, const void* data, bool is_wanted) {
  PointerAttributes found;
  const Code code = api.pointer_attributes(data, &found);
  if (code == Code::kNotSupported) return first;
  if (!ok(code)) throw_code(code, str_format("query whose memory {} is", data));
  if (found.kind == PointerKind::kUnknown) {
    throw BoundaryError(BoundaryFault::kWrongValue,
                        str_format("data at {} is not memory of {}: it is ordinary memory of the "
                                   "host, or was freed; allocate it there, with "
                                   "allocate_device_memory() or with empty()",
                                   data, to_string(first)));
  }
  if (found.kind != PointerKind::kDevice) return first;
  const Device device{first.type, found.device};
  if (is_wanted && device != first) {
    throw BoundaryError(BoundaryFault::kWrongValue,
                        str_format("data at {} lies on {}, but is to be used on a stream of {}",
                                   data, to_string(device), to_string(first)));
  }
  return device;
}

}  // namespace cgtree
