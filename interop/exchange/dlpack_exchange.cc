// Calls another library's table, and makes ours.
#include "interop/exchange/dlpack_exchange.h"

#include <algorithm>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/format.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/device/stream.h"
#include "interop/exchange/dlpack.h"
#include "interop/exchange/dlpack_tensor.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

[[noreturn]] void refused(std::string_view what) {
  throw BoundaryError(BoundaryFault::kNotSupported,
                      str_format("the other library refused to {}; its error says why", what));
}

// Returns the device that a prototype asks for.
Device device_of(dlpack::DeviceRef device) {
  const bool is_host = device.type == dlpack::kCpu;
  return is_host ? Device::host() : Device{static_cast<DeviceType>(device.type), device.id};
}

int allocate(dlpack::TensorView* prototype, dlpack::ManagedVersioned** out, void* error_context,
             dlpack::SetError set_error) noexcept {
  try {
    *out = to_unordered_dlpack(empty_like(*prototype)).release();  // nothing is pending there
    return 0;
  } catch (const OutOfMemory& error) {
    set_error(error_context, "MemoryError", error.what());
  } catch (const std::exception& error) {
    set_error(error_context, "BufferError", error.what());
  }
  return -1;
}

int current_stream_for(std::int32_t device_type, std::int32_t device_id, void** out) noexcept {
  const StreamRef current = current_stream_or_none();
  const bool is_there = current &&
                        static_cast<std::int32_t>(current.device().type) == device_type &&
                        current.device().id == device_id && device_type != dlpack::kCpu;
  *out = is_there ? current.native() : nullptr;
  return 0;
}

}  // namespace

StreamRef current_stream_of(const dlpack::Exchange& exchange, dlpack::DeviceRef device) {
  const bool is_device = device.type != dlpack::kCpu && device.type != dlpack::kCudaHost;
  const auto type = device.type == dlpack::kCudaManaged ? DeviceType::kCuda
                                                        : static_cast<DeviceType>(device.type);
  if (!is_device || find_device_api(type) == nullptr) return {};
  void* stream = nullptr;
  if (exchange.current_stream(device.type, device.id, &stream) != 0) {
    refused("tell its current stream");
  }
  const auto handle = static_cast<StreamHandle>(reinterpret_cast<std::uintptr_t>(stream));
  return {Device{type, device.id}, stream == nullptr ? StreamHandle::kLegacy : handle};
}

Tensor empty_like(const dlpack::TensorView& prototype) {
  if (prototype.ndim > 0 && prototype.shape == nullptr) {
    throw BoundaryError(
        BoundaryFault::kMissing,
        str_format("the prototype's shape is NULL, but ndim is {}", prototype.ndim));
  }
  const auto rank = static_cast<std::size_t>(std::max(prototype.ndim, 0));
  return empty(Shape(std::span<const std::int64_t>(prototype.shape, rank)),
               from_dlpack_type(prototype.dtype), device_of(prototype.device));
}

const dlpack::Exchange* find_exchange(const dlpack::ExchangeHeader* newest) noexcept {
  const dlpack::ExchangeHeader* header = newest;
  while (header != nullptr && header->version.major > dlpack::kVersion.major)
    header = header->previous;
  const bool fits = header != nullptr && header->version.major == dlpack::kVersion.major;
  if (!fits) return nullptr;
  // A table that lacks a function that we need is unusable.
  const auto* const exchange = reinterpret_cast<const dlpack::Exchange*>(header);
  const bool is_whole = exchange->from_object != nullptr && exchange->current_stream != nullptr;
  return is_whole ? exchange : nullptr;
}

Tensor from_exchange(const dlpack::Exchange& exchange, void* object, ImportOptions options) {
  dlpack::ManagedVersioned* given = nullptr;
  if (exchange.from_object(object, &given) != 0 || given == nullptr) refused("convert its tensor");
  DlpackTensor owned(given->deleter != nullptr ? given : nullptr);
  if (given->version.major == dlpack::kVersion.major) {
    options.producer = current_stream_of(exchange, given->tensor.device);
  }
  (void)owned.release();
  return from_dlpack(given, options);
}

dlpack::Exchange make_exchange(dlpack::FromObject from_object, dlpack::ToObject to_object,
                               dlpack::ViewOfObject view_of_object) noexcept {
  return {{dlpack::kVersion, nullptr}, &allocate, from_object, to_object, view_of_object,
          &current_stream_for};
}

}  // namespace cgtree
