// Imports arrays and exports tensors. An import checks the array, orders our work with that
// of its producer, and then makes the storage.
#include "interop/exchange/cuda_array_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "interop/device/device.h"
#include "interop/device/stream.h"
#include "interop/exchange/foreign_memory.h"
#include "interop/tensor/stream_synchronization.h"

namespace cgtree {
namespace {

// Returns whether elements of this kind, which has no DType, may be read as another.
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
    device = locate(api, device, data, is_wanted && !options.on_any_device);
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
  return imported({device, data, bytes, std::move(owner), producer, array.read_only}, order, 0,
                  std::move(shape), dtype);
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

namespace {

int version_of(const ExportOptions& options) {
  int version = 3;
  if (options.version) {
    version = *options.version;
  } else if (const char* value = std::getenv("CGTREE_CUDA_ARRAY_INTERFACE_EXPORT_VERSION")) {
    const std::string_view text(value);
    if (std::from_chars(text.data(), text.data() + text.size(), version).ec != std::errc()) {
      version = -1;
    }
  }
  if (version < 0 || version > 3) {
    throw BoundaryError(BoundaryFault::kWrongValue,
                        fmt::format("version {} of the CUDA array interface was asked for: "
                                    "expected 0 to 3",
                                    version));
  }
  return version;
}

// Returns nothing if the layout is row-major.
std::optional<std::vector<std::int64_t>> byte_strides(const Tensor& tensor) {
  if (tensor.is_contiguous()) return std::nullopt;
  std::vector<std::int64_t> strides(tensor.shape().strides().begin(),
                                    tensor.shape().strides().end());
  for (std::int64_t& stride : strides)
    stride *= static_cast<std::int64_t>(size_of(tensor.dtype()));
  return strides;
}

void expect_same_device(const Tensor& tensor, StreamRef stream) {
  if (stream && stream.device() == tensor.device()) return;
  throw InvalidArgument(fmt::format(
      "{} cannot be exported with {}", describe(tensor),
      stream ? "a stream of " + to_string(stream.device()) : std::string("a stream that is null")));
}

// Returns nothing if nothing is pending, or if a stream captures.
std::optional<std::uintptr_t> join(const Tensor& tensor, std::span<const StreamRef> pending) {
  std::vector<StreamRef> streams;
  const auto add = [&](StreamRef stream) {
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
      streams.push_back(stream);
    }
  };
  if (const StreamRef order = tensor.storage()->stream()) add(order);
  for (const StreamRef stream : pending) {
    expect_same_device(tensor, stream);
    add(stream);
  }
  const StreamRef current = current_stream_or_none();
  if (current && current.device() == tensor.device()) add(current);
  if (streams.empty() || std::any_of(streams.begin(), streams.end(),
                                     [](StreamRef stream) { return capture_of(stream) != 0; })) {
    return std::nullopt;
  }
  const StreamRef exported = streams.front();
  for (const StreamRef stream : streams)
    exported.wait_for(stream);
  const StreamHandle handle = exported.handle();
  return static_cast<std::uintptr_t>(handle == StreamHandle::kNull ? StreamHandle::kLegacy
                                                                   : handle);
}

}  // namespace

CudaArrayInterface to_cuda_array_interface(const Tensor& tensor, const ExportOptions& options) {
  CudaArrayInterface array;
  void* const data = tensor.data();  // throws where there is none
  array.version = version_of(options);
  array.shape.assign(tensor.shape().dims().begin(), tensor.shape().dims().end());
  array.strides = byte_strides(tensor);
  array.type = to_type_string(tensor.dtype());
  array.read_only = is_read_only(tensor);
  if (tensor.elements() == 0) return array;
  array.data = reinterpret_cast<std::uintptr_t>(data);
  if (array.version >= 3 && !options.is_idle) array.stream = join(tensor, options.pending);
  return array;
}

Tensor on_stream(const Tensor& tensor, std::shared_ptr<const Stream> stream) {
  void* const data = tensor.data();
  if (stream == nullptr) throw InvalidArgument("on_stream() was given no stream");
  if (tensor.storage()->owner().may_be_invalidated()) {
    throw InvalidArgument(
        fmt::format("{} belongs to a context, which may invalidate its memory: copy it first",
                    describe(tensor)));
  }
  const StreamRef order = stream->ref();
  expect_same_device(tensor, order);
  const StreamRef before = tensor.storage()->stream();
  if (before) order.wait_for(before);
  // The stream is destroyed last: the synchronization at the release needs it.
  auto owner =
      std::make_shared<std::pair<std::shared_ptr<const Stream>, Tensor>>(std::move(stream), tensor);
  const std::size_t bytes =
      static_cast<std::size_t>(tensor.shape().extent()) * size_of(tensor.dtype());
  StorageRef storage = ImportedStorage::make(
      {tensor.device(), data, bytes, std::move(owner), before, is_read_only(tensor)}, order);
  return Tensor(std::move(storage), 0, tensor.shape(), tensor.dtype());
}

}  // namespace cgtree
