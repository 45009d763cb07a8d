// Exports of tensors: dicts of the array interfaces, and capsules of DLPack.
#include "python/extension/tensor.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "interop/exchange/cuda_array_interface.h"
#include "interop/exchange/dlpack.h"
#include "interop/exchange/dlpack_tensor.h"
#include "python/extension/array_interface.h"
#include "python/extension/dlpack.h"
#include "python/extension/stream.h"

namespace cgtree::python {
namespace {

Reference cuda_dict(const Tensor& tensor, const ExportOptions& options) {
  const CudaArrayInterface array = to_cuda_array_interface(tensor, options);
  return interface_dict(tensor, array, array.version >= 3);
}

void expect_device(const Tensor& tensor, bool is_host, const char* name) {
  if ((tensor.device().type == DeviceType::kHost) == is_host) return;
  PyErr_Format(PyExc_AttributeError, "%s: a tensor on %s has none", name,
               to_string(tensor.device()).c_str());
  throw PythonError();
}

Reference cuda_array_interface(const Tensor& tensor, std::optional<std::int64_t> version,
                               PyObject* pending, bool is_idle) {
  ExportOptions options = {.is_idle = is_idle};
  if (version) options.version = static_cast<int>(*version);
  std::vector<StreamRef> streams;
  if (pending != nullptr)
    for_each_item(pending,
                  [&](PyObject* stream) { streams.push_back(to_stream(stream, tensor.device())); });
  options.pending = streams;
  return cuda_dict(tensor, options);
}

// The arguments of __dlpack__.
struct Request {
  DlpackExportOptions options;
  std::optional<dlpack::Version> max_version;
};

dlpack::Version read_version(PyObject* value) {
  constexpr const char* kWhat = "max_version";
  std::int64_t major = -1;
  std::int64_t minor = -1;
  if (PyTuple_Check(value) && PyTuple_Size(value) == 2) {  // nearly always
    major = to_int64(PyTuple_GetItem(value, 0), kWhat);
    minor = to_int64(PyTuple_GetItem(value, 1), kWhat);
  } else if (const auto numbers = to_integers(value, kWhat); numbers.size() == 2) {
    major = numbers[0];
    minor = numbers[1];
  }
  if (std::min(major, minor) < 0 || std::max(major, minor) > UINT32_MAX) {
    throw InvalidArgument("max_version: expected a pair (major, minor)");
  }
  return {static_cast<std::uint32_t>(major), static_cast<std::uint32_t>(minor)};
}

void read_keyword(const char* name, PyObject* value, Request& request) {
  const std::string_view given(name);
  if (given == "stream") {
    request.options.stream = static_cast<std::intptr_t>(to_int64(value, "stream"));
  } else if (given == "max_version") {
    request.max_version = read_version(value);
  } else if (given == "dl_device") {
    request.options.device = to_device(value);
  } else {
    request.options.copy = to_bool(value);
  }
}

// Compares names by address first, because it is called for each exported tensor.
Request read_request(PyObject* const* values, PyObject* names) {
  static const std::array kNames = {"stream", "max_version", "dl_device", "copy"};
  static const std::array kInterned = {
      PyUnicode_InternFromString(kNames[0]), PyUnicode_InternFromString(kNames[1]),
      PyUnicode_InternFromString(kNames[2]), PyUnicode_InternFromString(kNames[3])};
  Request request;
  for (Py_ssize_t i = 0; i < PyTuple_Size(names); ++i) {
    PyObject* const name = PyTuple_GetItem(names, i);
    std::size_t known = 0;
    while (known < kNames.size() && kInterned[known] != name)
      ++known;
    if (known == kNames.size()) {
      known = 0;
      while (known < kNames.size() && PyUnicode_CompareWithASCIIString(name, kNames[known]) != 0)
        ++known;
    }
    if (known == kNames.size()) {
      PyErr_Format(PyExc_TypeError, "__dlpack__() got an unexpected keyword argument %R", name);
      throw PythonError();
    }
    if (values[i] != Py_None) read_keyword(kNames[known], values[i], request);
  }
  return request;
}

// Copies may wait for a device.
template <auto make>
Reference export_capsule(const Tensor& tensor, const DlpackExportOptions& options) {
  const auto run = [&] { return make(tensor, options); };
  const bool may_block = options.device || options.copy == true;
  return make_capsule(may_block ? without_gil(run) : run());
}

PyObject* dlpack_capsule(PyObject* self, PyObject* const* values, Py_ssize_t count,
                         PyObject* names) {
  return guarded([&] {
    if (count != 0) {
      PyErr_SetString(PyExc_TypeError, "__dlpack__() takes keywords alone");
      throw PythonError();
    }
    const Request request = names == nullptr ? Request{} : read_request(values, names);
    const auto make = wants_versioned(request.max_version)
                          ? &export_capsule<&to_dlpack>
                          : &export_capsule<&to_unversioned_dlpack>;
    return make(tensor_of(self), request.options).release();
  });
}

Reference dlpack_device(const Tensor& tensor) {
  const dlpack::DeviceRef device = to_dlpack_device(tensor.device());
  return pack(device.type, device.id);
}

Reference cuda_array_interface_property(const Tensor& tensor) {
  expect_device(tensor, false, "__cuda_array_interface__");
  return cuda_dict(tensor, {});
}

Reference array_interface_property(const Tensor& tensor) {
  expect_device(tensor, true, "__array_interface__");
  const StreamRef stream = tensor.storage()->stream();
  if (stream && tensor.elements() > 0 && !stream.is_capturing()) stream.synchronize();
  CudaArrayInterface array = to_cuda_array_interface(tensor, {.is_idle = true, .version = 3});
  // NumPy reads a null pointer as a scalar.
  alignas(64) static const char kNowhere = 0;
  if (array.data == 0) array.data = reinterpret_cast<std::uintptr_t>(&kNowhere);
  return interface_dict(tensor, array, false);
}

}  // namespace

std::vector<Method> tensor_protocol_methods() {
  return {bind<&cuda_array_interface>("cuda_array_interface"),
          {"__dlpack__", reinterpret_cast<void*>(dlpack_capsule), METH_FASTCALL | METH_KEYWORDS},
          bind<[](const Tensor& tensor, PyObject* stream) {
            return on_stream(tensor, expect_own_stream(stream));
          }>("on_stream"),
          bind<&dlpack_device>("__dlpack_device__")};
}

std::vector<Property> tensor_protocol_properties() {
  return {property<&cuda_array_interface_property>("__cuda_array_interface__"),
          property<&array_interface_property>("__array_interface__")};
}

}  // namespace cgtree::python
