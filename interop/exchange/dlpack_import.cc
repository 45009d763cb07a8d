// Checks what another library handed over.
#include "interop/exchange/dlpack_import.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <span>

#include "interop/exchange/boundary_error.h"
#include "interop/exchange/dlpack_type.h"
#include "interop/exchange/foreign_memory.h"
#include "interop/exchange/imported_storage.h"
#include "interop/device/registry.h"

namespace cgtree {
namespace {

// What the two structs have in common.
struct Given {
  const dlpack::TensorView& tensor;
  bool needs_strides;
  bool is_read_only;
  std::shared_ptr<void> owner;
};

[[noreturn]] void refuse(BoundaryFault fault, std::string_view what) {
  throw BoundaryError(fault, what);
}

template <typename T>
std::shared_ptr<void> own(T* stolen) {
  return std::shared_ptr<void>(stolen, [](T* tensor) {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  });
}

Shape shape_of(const dlpack::TensorView& tensor, bool needs_strides, DType dtype) {
  if (tensor.ndim < 0) {
    refuse(BoundaryFault::kWrongValue, fmt::format("ndim is {}: it is negative", tensor.ndim));
  }
  if (tensor.ndim == 0) return {};
  if (tensor.shape == nullptr) {
    refuse(BoundaryFault::kMissing, fmt::format("shape is null, but ndim is {}", tensor.ndim));
  }
  if (tensor.strides == nullptr && needs_strides) {
    refuse(BoundaryFault::kMissing,
           fmt::format("strides are null, but ndim is {}: from DLPack 1.2 on they must be given",
                       tensor.ndim));
  }
  const auto rank = static_cast<std::size_t>(tensor.ndim);
  std::optional<std::span<const std::int64_t>> strides;
  if (tensor.strides != nullptr) strides.emplace(tensor.strides, rank);
  return shape_of_layout({tensor.shape, rank}, strides, StrideUnit::kElements, dtype);
}

DeviceType type_of(dlpack::DeviceRef device) {
  switch (device.type) {
    case dlpack::kCpu:
    case dlpack::kCudaHost:
      return DeviceType::kHost;
    case dlpack::kCuda:
    case dlpack::kCudaManaged:
      return DeviceType::kCuda;
    default:
      break;
  }
  const auto type = static_cast<DeviceType>(device.type);
  if (type >= DeviceType::kFirstUserType && find_device_api(type) != nullptr) return type;
  refuse(BoundaryFault::kNotSupported,
         fmt::format("data is on {}: expected the CPU, CUDA, or a device that was registered",
                     to_string(device)));
}

// Whose memory it is. `consumer` may name no stream.
Device device_of(dlpack::DeviceRef given, const void* data, StreamRef consumer) {
  const DeviceType type = type_of(given);
  if (type == DeviceType::kHost) return Device::host();
  const bool is_anywhere = given.type == dlpack::kCudaManaged;
  const Device said{type, is_anywhere ? 0 : given.id};
  const Device device = is_anywhere && consumer ? consumer.device() : said;
  DeviceAPI& api = device_api(device);
  if (consumer && consumer.device() != device) {
    refuse(BoundaryFault::kWrongValue,
           fmt::format("data is on {}, but is to be used on a stream of {}", to_string(device),
                       to_string(consumer.device())));
  }
  return data == nullptr ? device : locate(api, device, data, true);
}

// Throws where the data ends beyond the addresses there are.
std::size_t bytes_to_end(const std::byte* data, std::uint64_t offset, std::size_t bytes) {
  std::uintptr_t end = reinterpret_cast<std::uintptr_t>(data);
  if (offset > PTRDIFF_MAX || __builtin_add_overflow(end, offset, &end) ||
      __builtin_add_overflow(end, bytes, &end)) {
    refuse(BoundaryFault::kWrongValue,
           fmt::format("data at {} + {}, {} bytes, reaches beyond the addresses there are",
                       static_cast<const void*>(data), offset, bytes));
  }
  return offset + bytes;
}

struct Place {
  std::byte* data;
  std::size_t offset;  // of the first element
  std::size_t bytes;   // from `data` on
};

Place place_of(const dlpack::TensorView& tensor, const Shape& shape, DType dtype) {
  if (shape.elements() == 0) return {nullptr, 0, 0};
  auto* const data = static_cast<std::byte*>(tensor.data);
  if (data == nullptr) {
    refuse(BoundaryFault::kWrongValue,
           fmt::format("data is null, but the shape is {}", to_string(shape)));
  }
  const std::size_t bytes = static_cast<std::size_t>(shape.extent()) * size_of(dtype);
  const Place place{data, tensor.byte_offset, bytes_to_end(data, tensor.byte_offset, bytes)};
  check_alignment(reinterpret_cast<std::uintptr_t>(data) + place.offset, dtype);
  return place;
}

Tensor take(Given given, const DlpackImportOptions& options) {
  const dlpack::TensorView& tensor = given.tensor;
  const DType dtype = from_dlpack_type(tensor.dtype);
  Shape shape = shape_of(tensor, given.needs_strides, dtype);
  const Place place = place_of(tensor, shape, dtype);
  StreamRef consumer = consumer_or_current(options.consumer);
  // Memory of the host may be used on any device's stream, to copy from.
  if (consumer && consumer.device().type != type_of(tensor.device)) consumer = {};
  const void* const first = place.data == nullptr ? nullptr : place.data + place.offset;
  const Device device = device_of(tensor.device, first, consumer);
  if (!consumer || consumer.device() != device) consumer = {device, StreamHandle::kLegacy};
  const StreamRef order = order_import(options.producer, consumer, options.sync);
  const StreamRef producer = options.sync == SyncPolicy::kIgnore ? StreamRef() : options.producer;
  StorageRef storage = ImportedStorage::make(
      {device, place.data, place.bytes, std::move(given.owner), producer, given.is_read_only},
      order);
  return Tensor(std::move(storage), place.offset, std::move(shape), dtype);
}

}  // namespace

Tensor from_dlpack(dlpack::ManagedVersioned* stolen, const DlpackImportOptions& options) {
  if (stolen == nullptr) refuse(BoundaryFault::kMissing, "no tensor was given: a null pointer was");
  std::shared_ptr<void> owner = own(stolen);
  const dlpack::Version version = stolen->version;
  if (version.major != dlpack::kVersion.major) {
    refuse(BoundaryFault::kNotSupported,
           fmt::format("the tensor speaks DLPack {}.{}: expected {}.x, which is what a producer is "
                       "asked for with max_version=({}, {})",
                       version.major, version.minor, dlpack::kVersion.major, dlpack::kVersion.major,
                       dlpack::kVersion.minor));
  }
  return take({stolen->tensor, version.minor >= 2, (stolen->flags & dlpack::kReadOnly) != 0,
               std::move(owner)},
              options);
}

Tensor from_dlpack(dlpack::Managed* stolen, const DlpackImportOptions& options) {
  if (stolen == nullptr) refuse(BoundaryFault::kMissing, "no tensor was given: a null pointer was");
  return take({stolen->tensor, false, false, own(stolen)}, options);
}

}  // namespace cgtree
