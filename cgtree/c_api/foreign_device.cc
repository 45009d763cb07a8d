// Passes verbs on to C.
#include "cgtree/c_api/foreign_device.h"

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <new>

#include "base/error.h"
#include "base/log.h"

namespace cgtree::capi {
namespace {

void expect(bool is_there, std::string_view what) {
  if (!is_there) throw InvalidArgument(fmt::format("cgt_device_api::{} is NULL", what));
}

}  // namespace

ForeignDevice::ForeignDevice(const cgt_device_api& api)
    : name_(api.name == nullptr ? "" : api.name), api_(api) {
  if (name_.empty()) throw InvalidArgument("cgt_device_api::name is NULL or empty");
  expect(api.exists != nullptr, "exists");
  expect(api.alloc != nullptr, "alloc");
  expect(api.free != nullptr, "free");
  expect(api.copy != nullptr, "copy");
  expect(api.create_stream != nullptr, "create_stream");
  expect(api.destroy_stream != nullptr, "destroy_stream");
  expect(api.synchronize_stream != nullptr, "synchronize_stream");
  expect(api.query_stream != nullptr, "query_stream");
  expect(api.synchronize_device != nullptr, "synchronize_device");
}

template <typename Verb>
Code ForeignDevice::ask(std::string_view verb, const Verb& call) const noexcept {
  try {
    return static_cast<Code>(call());
  } catch (...) {
    log_event(LogLevel::kError, "device_threw device={} verb={}", name_, verb);
    return Code::kUnknown;
  }
}

AttributeValue ForeignDevice::attribute(int id, DeviceAttribute attribute) noexcept {
  if (attribute != DeviceAttribute::kExists) return {};
  std::int32_t exists = 0;
  const Code code = ask("exists", [&] { return api_.exists(api_.user, id, &exists); });
  return std::int64_t{ok(code) && exists != 0};
}

Code ForeignDevice::alloc_data_space(int id, std::size_t bytes, void** data) {
  void* made = nullptr;
  const Code code = ask("alloc", [&] { return api_.alloc(api_.user, id, bytes, &made); });
  if (!ok(code)) return code;
  if (made == nullptr) return Code::kMemoryAllocation;
  if (reinterpret_cast<std::uintptr_t>(made) % kDataSpaceAlignment != 0) {
    log_event(LogLevel::kError, "device_misaligned device={} data={} alignment={}", name_, made,
              kDataSpaceAlignment);
    (void)free_data_space(id, made);
    return Code::kInvalidValue;
  }
  *data = made;
  return Code::kSuccess;
}

Code ForeignDevice::free_data_space(int id, void* data) {
  return ask("free", [&] { return api_.free(api_.user, id, data); });
}

Code ForeignDevice::alloc_pinned(std::size_t bytes, void** data) {
  *data = ::operator new(bytes, std::align_val_t(kDataSpaceAlignment), std::nothrow);
  return *data == nullptr ? Code::kMemoryAllocation : Code::kSuccess;
}

Code ForeignDevice::free_pinned(void* data) {
  ::operator delete(data, std::align_val_t(kDataSpaceAlignment));
  return Code::kSuccess;
}

Code ForeignDevice::copy(StreamHandle stream, void* destination, const void* source,
                         std::size_t bytes) {
  return ask("copy", [&] {
    return api_.copy(api_.user, static_cast<std::uintptr_t>(stream), destination, source, bytes);
  });
}

Code ForeignDevice::create_stream(int id, StreamKind, StreamHandle* stream) {
  std::uintptr_t made = 0;
  const Code code = ask("create_stream", [&] { return api_.create_stream(api_.user, id, &made); });
  if (ok(code)) *stream = static_cast<StreamHandle>(made);
  return code;
}

Code ForeignDevice::destroy_stream(StreamHandle stream) {
  return ask("destroy_stream",
             [&] { return api_.destroy_stream(api_.user, static_cast<std::uintptr_t>(stream)); });
}

Code ForeignDevice::synchronize_stream(StreamHandle stream) {
  return ask("synchronize_stream", [&] {
    return api_.synchronize_stream(api_.user, static_cast<std::uintptr_t>(stream));
  });
}

Code ForeignDevice::query_stream(StreamHandle stream) {
  return ask("query_stream",
             [&] { return api_.query_stream(api_.user, static_cast<std::uintptr_t>(stream)); });
}

Code ForeignDevice::synchronize_device(int id) {
  return ask("synchronize_device", [&] { return api_.synchronize_device(api_.user, id); });
}

}  // namespace cgtree::capi
