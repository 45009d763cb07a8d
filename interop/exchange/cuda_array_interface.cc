// Reads the fields of an array, and describes tensors with them.
#include "interop/exchange/cuda_array_interface.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace cgtree {
namespace {

[[noreturn]] void refuse(std::string_view what) {
  throw BoundaryError(BoundaryFault::kWrongValue, what);
}

void check_fields(const CudaArrayInterface& array) {
  if (array.version < 0) {
    refuse(str_format("'version' is {}: expected 0 to 3, or later", array.version));
  }
  if (array.strides && array.strides->size() != array.shape.size()) {
    refuse(str_format("'strides' is ({}), {} numbers, but 'shape' is ({}), {} dimensions",
                      joined(*array.strides, ", "), array.strides->size(),
                      joined(array.shape, ", "), array.shape.size()));
  }
  if (array.stream == 0) {
    refuse(
        "'stream' is 0, which could mean no stream or either default stream: expected None, 1 "
        "(legacy), 2 (per thread) or a cudaStream_t");
  }
}

DType element_type(const TypeString& type, std::optional<DType> wanted) {
  if (type.dtype && (!wanted || *wanted == *type.dtype)) return *type.dtype;
  if (type.dtype) {
    refuse(str_format("'typestr' is '{}', which is {}, but {} was asked for", type.text,
                      name(*type.dtype), name(*wanted)));
  }
  if (!wanted) {
    throw BoundaryError(BoundaryFault::kNotSupported,
                        str_format("'typestr' is '{}': tensors have no such elements; say with "
                                   "ImportOptions::dtype how to read them",
                                   type.text));
  }
  if (type.bytes != static_cast<std::int64_t>(size_of(*wanted))) {
    refuse(str_format("'typestr' is '{}', but {}, which was asked for, has {} bytes", type.text,
                      name(*wanted), size_of(*wanted)));
  }
  return *wanted;
}

SyncPolicy sync_of_environment() {
  const char* const value = std::getenv("CGTREE_CUDA_ARRAY_INTERFACE_SYNC");
  const bool is_off = value != nullptr && std::string_view(value) == "0";
  return is_off ? SyncPolicy::kIgnore : SyncPolicy::kEventWait;
}

}  // namespace

ForeignArray read_array(const CudaArrayInterface& array, std::optional<DType> dtype) {
  check_fields(array);
  ForeignArray read;
  read.dtype = element_type(array.type, dtype);
  read.shape = shape_of_layout(array.shape, array.strides ? array.strides->data() : nullptr,
                               StrideUnit::kBytes, read.dtype);
  read.data = reinterpret_cast<void*>(array.data);
  read.is_read_only = array.read_only;
  if (array.stream) read.stream = static_cast<StreamHandle>(*array.stream);
  return read;
}

Tensor from_cuda_array_interface(const CudaArrayInterface& array, std::shared_ptr<void> owner,
                                 ImportOptions options) {
  ForeignArray read = read_array(array, options.dtype);
  read.owner = std::move(owner);
  if (read.stream && !options.sync) options.sync = sync_of_environment();
  if (options.device && !options.consumer) {
    const StreamRef current = current_stream_or_none();
    const bool fits = current && current.device() == *options.device;
    options.consumer = fits ? current : StreamRef(*options.device, StreamHandle::kLegacy);
  }
  return import_array(std::move(read), options);
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
    refuse(str_format("version {} of the CUDA array interface was asked for: expected 0 to 3",
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

// Returns nothing if nothing is pending, or if a stream captures.
std::optional<std::uintptr_t> join(const Tensor& tensor, std::span<const StreamRef> given) {
  for (const StreamRef stream : given)
    expect_same_device(tensor, stream);
  const PendingStreams pending = pending_streams(tensor, given);
  if (pending.streams.empty() || !pending.capturing.empty()) return std::nullopt;
  const StreamRef exported = pending.streams.front();
  for (const StreamRef stream : pending.streams)
    exported.wait_for(stream);
  const StreamHandle handle = exported.handle();
  return static_cast<std::uintptr_t>(handle == StreamHandle::kNull ? StreamHandle::kLegacy
                                                                   : handle);
}

}  // namespace

CudaArrayInterface to_cuda_array_interface(const Tensor& tensor, const ExportOptions& options) {
  CudaArrayInterface array;
  void* const data = tensor.data();  // throws if there is none
  array.version = version_of(options);
  array.shape.assign(tensor.shape().dims().begin(), tensor.shape().dims().end());
  array.strides = byte_strides(tensor);
  array.type = type_string_of(tensor.dtype());
  array.read_only = is_read_only(tensor);
  if (tensor.elements() == 0) return array;
  array.data = reinterpret_cast<std::uintptr_t>(data);
  if (array.version >= 3 && !options.is_idle) array.stream = join(tensor, options.pending);
  return array;
}

}  // namespace cgtree
