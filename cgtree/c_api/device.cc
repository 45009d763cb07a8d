// Devices in C.
#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "cgtree/c_api/convert.h"
#include "cgtree/c_api/foreign_device.h"
#include "cgtree/c_api/sized_struct.h"
#include "cgtree/c_api/status.h"
#include "interop/device/device.h"

namespace cgtree::capi {
namespace {

std::string text_of(const AttributeValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return "";
}

// Also for devices that do not exist: that is one of the questions.
DeviceAPI& api_of(cgt_device device) {
  DeviceAPI* const api = find_device_api(static_cast<DeviceType>(device.type));
  return api != nullptr ? *api : device_api(device_of_c(device));  // throws
}

}  // namespace
}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

cgt_status cgt_device_best(cgt_device* out) {
  return guarded([&] { required(out, "the place for the device") = to_c(Device::best()); });
}

cgt_status cgt_device_parse(const char* text, cgt_device* out) {
  return guarded([&] {
    required(out, "the place for the device") = to_c(parse_device(&required(text, "the text")));
  });
}

cgt_status cgt_device_attribute(cgt_device device, int32_t kind, char* buffer, size_t capacity,
                                size_t* length) {
  return guarded([&] {
    const AttributeValue value =
        api_of(device).attribute(device.id, static_cast<DeviceAttribute>(kind));
    write_text(text_of(value), buffer, capacity, length);
  });
}

cgt_status cgt_device_register(int32_t type, const cgt_device_api* api) {
  return guarded([&] {
    auto made = std::make_unique<ForeignDevice>(
        read_struct(&required(api, "the device's functions"), "cgt_device_api"));
    register_device_api(static_cast<DeviceType>(type), *made);
    (void)made.release();  // serves for the rest of the process
  });
}

}  // extern "C"
