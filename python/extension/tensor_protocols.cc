// Exports of tensors: dicts of the array interfaces, and capsules of DLPack.
#include "python/extension/tensor.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "interop/exchange/cuda_array_tensor.h"
#include "interop/exchange/dlpack.h"
#include "interop/exchange/dlpack_tensor.h"
#include "python/extension/dlpack.h"
#include "python/extension/stream.h"

namespace cgtree::python {
namespace {

// The keys of the dicts, which are made once.
enum Key { kShape, kTypestr, kData, kStrides, kVersion, kStream };
const std::array<PyObject*, 6>& keys() {
  static const std::array<PyObject*, 6> made = {
      PyUnicode_InternFromString("shape"),   PyUnicode_InternFromString("typestr"),
      PyUnicode_InternFromString("data"),    PyUnicode_InternFromString("strides"),
      PyUnicode_InternFromString("version"), PyUnicode_InternFromString("stream")};
  return made;
}

PyObject* type_string(DType dtype) {
  static std::array<PyObject*, kDTypeCount> made = {};
  PyObject*& text = made[static_cast<std::size_t>(dtype)];
  if (text == nullptr) text = from_text(to_string(to_type_string(dtype))).release();
  return text;
}

Reference dict_of(const Tensor& tensor, const CudaArrayInterface& array, bool has_stream) {
  const auto& key = keys();
  Reference dict = new_dict();
  put(dict, key[kShape], from_integers(array.shape));
  put(dict, key[kTypestr], type_string(tensor.dtype()));
  const Reference address = to_python(array.data);
  put(dict, key[kData],
      checked(PyTuple_Pack(2, address.get(), array.read_only ? Py_True : Py_False)));
  put(dict, key[kStrides],
      array.strides ? from_integers(*array.strides) : Reference::borrow(Py_None));
  put(dict, key[kVersion], array.version);
  if (has_stream) put(dict, key[kStream], array.stream);
  return dict;
}

Reference cuda_dict(const Tensor& tensor, const ExportOptions& options) {
  const CudaArrayInterface array = to_cuda_array_interface(tensor, options);
  return dict_of(tensor, array, array.version >= 3);
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

Reference export_capsule(const Tensor& tensor, const Request& request) {
  const bool is_versioned = wants_versioned(request.max_version);
  const bool may_block = request.options.device || request.options.copy == true;
  if (!may_block) {
    return is_versioned ? make_capsule(to_dlpack(tensor, request.options))
                        : make_capsule(to_unversioned_dlpack(tensor, request.options));
  }
  DlpackTensor versioned;
  UnversionedDlpackTensor unversioned;
  {
    const GilRelease released;
    if (is_versioned) {
      versioned = to_dlpack(tensor, request.options);
    } else {
      unversioned = to_unversioned_dlpack(tensor, request.options);
    }
  }
  return is_versioned ? make_capsule(std::move(versioned)) : make_capsule(std::move(unversioned));
}

PyObject* dlpack_capsule(PyObject* self, PyObject* const* values, Py_ssize_t count,
                         PyObject* names) {
  return guarded([&] {
    if (count != 0) {
      PyErr_SetString(PyExc_TypeError, "__dlpack__() takes keywords alone");
      throw PythonError();
    }
    const Request request = names == nullptr ? Request{} : read_request(values, names);
    return export_capsule(tensor_of(self), request).release();
  });
}

Reference dlpack_device(const Tensor& tensor) {
  const dlpack::DeviceRef device = to_dlpack_device(tensor.device());
  return pack(device.type, device.type == dlpack::kCpu ? 0 : device.id);
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
  return dict_of(tensor, array, false);
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
