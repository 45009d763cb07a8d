// Functions that make tensors: empty(), scalar(), imports, views, and memory lent to libraries.

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "interop/exchange/lent_memory.h"
#include "interop/tensor/empty.h"
#include "python/extension/import.h"
#include "python/extension/module.h"
#include "python/extension/stream.h"
#include "python/extension/tensor.h"

namespace cgtree::python {

template <>
struct Caster<SyncPolicy> {
  static SyncPolicy from(PyObject* object, const char* what) {
    if (object == Py_True) return SyncPolicy::kEventWait;
    if (object == Py_False) return SyncPolicy::kIgnore;
    return to_choice<SyncPolicy>(object, what,
                                 {{"wait", SyncPolicy::kEventWait},
                                  {"synchronize", SyncPolicy::kSynchronize},
                                  {"enqueue", SyncPolicy::kEnqueue},
                                  {"ignore", SyncPolicy::kIgnore}});
  }
};

namespace {

using Dims = std::vector<std::int64_t>;

Tensor make_empty(const Dims& dims, std::optional<DType> dtype, std::optional<Device> given) {
  const std::optional<Device> device = device_for_empty(given);
  return without_gil([&] { return empty(Shape(dims), dtype.value_or(DType::kFloat32), device); });
}

Tensor integer_scalar(std::int64_t value, DType dtype) {
  if (!is_in_range(value, dtype)) {
    throw InvalidArgument(str_format("scalar(): {} is out of the range of {}", value, name(dtype)));
  }
  return by_value(&value, size_of(dtype), Shape(), dtype);
}

Tensor make_scalar(PyObject* value, std::optional<DType> given) {
  const DType natural = PyBool_Check(value)         ? DType::kBool
                        : PyIndex_Check(value) != 0 ? DType::kInt64
                                                    : DType::kFloat64;
  const DType dtype = given.value_or(natural);
  if (dtype == DType::kBool) return scalar(to_bool(value));
  if (dtype == DType::kUInt64) return scalar(std::uint64_t{to_address(value, "value")});
  if (dtype < DType::kUInt64) return integer_scalar(to_int64(value, "value"), dtype);
  if (dtype == DType::kFloat32) return scalar(static_cast<float>(to_double(value, "value")));
  if (dtype == DType::kFloat64) return scalar(to_double(value, "value"));
  throw InvalidArgument(str_format("scalar(): {} is not supported", name(dtype)));
}

ImportOptions import_options(PyObject* stream, std::optional<SyncPolicy> sync,
                             std::optional<DType> dtype, std::optional<Device> device) {
  return {.consumer = to_stream(stream, device), .sync = sync, .dtype = dtype, .device = device};
}

Tensor as_tensor(PyObject* array, PyObject* stream, std::optional<SyncPolicy> sync,
                 std::optional<DType> dtype, std::optional<Device> device) {
  return import_object(array, import_options(stream, sync, dtype, device));
}

Tensor from_cuda_array(PyObject* array, PyObject* owner, PyObject* stream,
                       std::optional<SyncPolicy> sync, std::optional<DType> dtype,
                       std::optional<Device> device) {
  return import_cuda_array(array, owner, import_options(stream, sync, dtype, device));
}

Tensor from_host_array(PyObject* array, PyObject* owner, std::optional<DType> dtype) {
  return import_host_array(array, owner, {.dtype = dtype});
}

Tensor from_dlpack_object(PyObject* array, PyObject* stream, std::optional<Device> device) {
  return import_dlpack(array, import_options(stream, {}, {}, device));
}

Tensor make_view(const Tensor& owner, Word address, const Dims& dims, Dims strides, DType dtype) {
  if (strides.size() != dims.size()) throw InvalidArgument("view(): one stride per dimension");
  for (std::int64_t& stride : strides)
    stride /= static_cast<std::int64_t>(size_of(dtype));
  const Shape shape(dims, strides);
  const std::uintptr_t begin = owner.storage()->address();
  const std::size_t held = owner.storage()->bytes();
  std::size_t bytes = 0;
  const bool is_huge =
      __builtin_mul_overflow(static_cast<std::size_t>(shape.extent()), size_of(dtype), &bytes);
  if (bytes == 0 && !is_huge) return Tensor(owner.storage(), 0, Shape(dims), dtype);
  if (is_huge || bytes > held || address < begin || address - begin > held - bytes) {
    throw InvalidArgument(
        str_format("view(): {} bytes at {:#x} are not in {}", bytes, address, describe(owner)));
  }
  return Tensor(owner.storage(), address - begin, shape, dtype);
}

// ---- Memory that other libraries know only by its address ----

struct Lent {
  Lease lease;

  void end() { end_without_gil(std::move(lease)); }
};

Reference lend(const Tensor& tensor) {
  return new_object<Lent>(Lent{Lease(tensor.storage())});
}

std::optional<Tensor> lent(Word address) {
  StorageRef storage = find_lent(std::nullopt, address, 1);
  if (!storage) return std::nullopt;
  const auto bytes = static_cast<std::int64_t>(storage->bytes());
  return Tensor(std::move(storage), 0, {bytes}, DType::kUInt8);
}

}  // namespace

void add_arrays(PyObject* module) {
  add_type<Lent>(module, {.name = "cgtree._cgtree.Lent"});
  add_functions(
      module, {bind_function<&make_empty>("empty"), bind_function<&make_scalar>("scalar"),
               bind_function<&as_tensor>("as_tensor"),
               bind_function<&from_cuda_array>("from_cuda_array_interface"),
               bind_function<&from_host_array>("from_array_interface"),
               bind_function<&from_dlpack_object>("from_dlpack"), bind_function<&make_view>("view"),
               bind_function<&lend>("lend"), bind_function<&lent>("lent")});
}

}  // namespace cgtree::python
