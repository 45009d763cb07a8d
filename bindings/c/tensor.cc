// Tensors in C: functions that make, describe, view, copy and destroy them.
#include <optional>

#include "base/format.h"
#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"

namespace cgtree::capi {
namespace {

Shape shape_of_c(std::int32_t ndim, const std::int64_t* shape) {
  if (ndim < 0 || ndim > Shape::kMaxRank) {
    throw InvalidArgument(
        str_format("ndim is {}: expected 0 to {}", ndim, static_cast<int>(Shape::kMaxRank)));
  }
  return Shape(span_of_c(shape, static_cast<std::size_t>(ndim), "the shape"));
}

cgt_tensor_info info_of(const Tensor& tensor) {
  cgt_tensor_info info = {};
  info.dtype = to_c(tensor.dtype());
  info.device = to_c(tensor.device());
  info.ndim = tensor.rank();
  info.is_read_only = tensor.storage()->is_read_only();
  info.shape = tensor.shape().dims().data();
  info.strides = tensor.shape().strides().data();
  info.elements = tensor.elements();
  info.bytes = tensor.bytes();
  info.data = tensor.data();
  info.stream = to_c(tensor.storage()->stream());
  return info;
}

// Makes a handle of the tensor that make() returns.
template <typename Make>
cgt_status give(cgt_tensor* out, const Make& make) {
  return write_result(out, [&] { return make_tensor(make()); });
}

}  // namespace
}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

cgt_status cgt_tensor_empty(cgt_dtype dtype, int32_t ndim, const int64_t* shape,
                            const cgt_device* device, cgt_tensor* out) {
  return give(out, [&] {
    return empty(shape_of_c(ndim, shape), dtype_of_c(dtype),
                 device == nullptr ? std::nullopt : std::optional(device_of_c(*device)));
  });
}

cgt_status cgt_tensor_by_value(cgt_dtype dtype, int32_t ndim, const int64_t* shape,
                               const void* values, cgt_tensor* out) {
  return give(out, [&] {
    const DType type = dtype_of_c(dtype);
    const Shape given = shape_of_c(ndim, shape);
    const auto bytes = static_cast<std::size_t>(given.elements()) * size_of(type);
    return by_value(&required(static_cast<const char*>(values), "the values"), bytes, given, type);
  });
}

cgt_status cgt_tensor_destroy(cgt_tensor tensor) {
  return guarded([&] { destroy_tensor(tensor); });
}

cgt_status cgt_tensor_share(cgt_tensor tensor, cgt_tensor* out) {
  return give(out, [&] { return tensor_of(tensor); });
}

cgt_status cgt_tensor_describe(cgt_tensor tensor, cgt_tensor_info* info) {
  return guarded([&] { write_struct(info_of(tensor_of(tensor)), info, "cgt_tensor_info"); });
}

cgt_status cgt_tensor_reshape(cgt_tensor tensor, int32_t ndim, const int64_t* shape,
                              cgt_tensor* out) {
  return give(out, [&] { return tensor_of(tensor).reshape(shape_of_c(ndim, shape)); });
}

cgt_status cgt_tensor_slice(cgt_tensor tensor, int32_t axis, int64_t begin, int64_t end,
                            cgt_tensor* out) {
  return give(out, [&] { return tensor_of(tensor).slice(axis, begin, end); });
}

cgt_status cgt_tensor_transpose(cgt_tensor tensor, int32_t axis, int32_t other, cgt_tensor* out) {
  return give(out, [&] { return tensor_of(tensor).transpose(axis, other); });
}

cgt_status cgt_tensor_copy_from_host(cgt_tensor tensor, const void* data, size_t bytes) {
  return guarded([&] {
    const Tensor& to = tensor_of(tensor);
    to.copy_from_host(span_of_c(static_cast<const char*>(data), bytes, "the data").data(), bytes);
  });
}

cgt_status cgt_tensor_copy_to_host(cgt_tensor tensor, void* data, size_t bytes) {
  return guarded([&] {
    const Tensor& from = tensor_of(tensor);
    from.copy_to_host(span_of_c(static_cast<char*>(data), bytes, "the data").data(), bytes);
  });
}

cgt_status cgt_tensor_copy(cgt_tensor destination, cgt_tensor source, const cgt_stream* stream) {
  return guarded([&] {
    const Tensor& to = tensor_of(destination, "the destination");
    copy(to, tensor_of(source, "the source"), stream_of_c(stream));
  });
}

cgt_status cgt_tensor_note_use(cgt_tensor tensor, const cgt_stream* stream) {
  return guarded([&] {
    const StreamRef user = stream != nullptr ? stream_of_c(*stream) : current_stream();
    note_use(tensor_of(tensor).storage(), user);
  });
}

}  // extern "C"
