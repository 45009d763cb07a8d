// Checks first, then orders, then takes.
#include "interop/exchange/cuda_array_interface_import.h"

#include <fmt/format.h>

#include <cstdlib>
#include <span>
#include <string_view>

#include "interop/exchange/boundary_error.h"
#include "interop/exchange/foreign_memory.h"
#include "interop/exchange/imported_storage.h"
#include "interop/device/registry.h"

namespace cgtree {
namespace {

// Kinds without a DType, whose bytes may be read as another.
bool may_be_read_as(const TypeString& type) {
  return type.kind == 'V' || type.kind == 'm' || type.kind == 'M';
}

DType dtype_of_array(const CudaArrayInterface& array, std::optional<DType> wanted) {
  const std::optional<DType> found = to_dtype(array.type);
  if (found && (!wanted || *wanted == *found)) return *found;
  const std::string text = to_string(array.type);
  if (found) {
    throw BoundaryError(BoundaryFault::kWrongValue,
                        fmt::format("'typestr' is '{}', which is {}, but {} was asked for", text,
                                    name(*found), name(*wanted)));
  }
  if (!wanted || !may_be_read_as(array.type)) {
    throw BoundaryError(
        BoundaryFault::kNotSupported,
        fmt::format(
            "'typestr' is '{}': tensors have no such elements{}", text,
            may_be_read_as(array.type) ? "; say with ImportOptions::dtype how to read them" : ""));
  }
  if (element_bytes(array.type) != static_cast<std::int64_t>(size_of(*wanted))) {
    throw BoundaryError(BoundaryFault::kWrongValue,
                        fmt::format("'typestr' is '{}', but {}, which was asked for, has {} bytes",
                                    text, name(*wanted), size_of(*wanted)));
  }
  return *wanted;
}

Shape shape_of_array(const CudaArrayInterface& array, DType dtype) {
  std::optional<std::span<const std::int64_t>> strides;
  if (array.strides) strides = *array.strides;
  return shape_of_layout(array.shape, strides, StrideUnit::kBytes, dtype);
}

SyncPolicy policy_of(const ImportOptions& options) {
  if (options.sync) return *options.sync;
  const char* const value = std::getenv("CGTREE_CUDA_ARRAY_INTERFACE_SYNC");
  const bool is_off = value != nullptr && std::string_view(value) == "0";
  return is_off ? SyncPolicy::kIgnore : SyncPolicy::kEventWait;
}

}  // namespace

Tensor from_cuda_array_interface(const CudaArrayInterface& array, std::shared_ptr<void> owner,
                                 const ImportOptions& options) {
  check_interface(array);
  const DType dtype = dtype_of_array(array, options.dtype);
  Shape shape = shape_of_array(array, dtype);
  StreamRef consumer = consumer_or_current(options.consumer);
  const bool is_wanted = static_cast<bool>(consumer);
  Device device = is_wanted ? consumer.device() : Device::best();
  DeviceAPI& api = is_wanted ? consumer.api() : device_api(device);
  void* const data = shape.elements() == 0 ? nullptr : reinterpret_cast<void*>(array.data);
  if (data != nullptr) {
    check_alignment(array.data, dtype);
    device = locate(api, device, data, is_wanted);
  }
  if (!is_wanted) consumer = StreamRef(api, device, StreamHandle::kLegacy);
  StreamRef producer;
  StreamRef order = consumer;
  if (data != nullptr && array.stream) {
    const SyncPolicy policy = policy_of(options);
    if (policy != SyncPolicy::kIgnore) {
      producer = StreamRef(api, device, static_cast<StreamHandle>(*array.stream));
      order = order_import(producer, consumer, policy);
    }
  }
  const std::size_t bytes = static_cast<std::size_t>(shape.extent()) * size_of(dtype);
  StorageRef storage = ImportedStorage::make(
      {device, data, bytes, std::move(owner), producer, array.read_only}, order);
  return Tensor(std::move(storage), 0, std::move(shape), dtype);
}

Tensor as_tensor(std::shared_ptr<void> owner, const CudaArrayInterface& array,
                 const ImportOptions& options) {
  if (owner == nullptr) {
    throw BoundaryError(BoundaryFault::kMissing,
                        "as_tensor() keeps the owner of the memory, and none was given: expected "
                        "the object, or a call of from_cuda_array_interface()");
  }
  return from_cuda_array_interface(array, std::move(owner), options);
}

}  // namespace cgtree
