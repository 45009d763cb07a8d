// The array interfaces of CUDA and of NumPy: reads their dicts, and makes dicts of tensors.
#include "interop/exchange/cuda_array_interface.h"

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "interop/device/stream.h"
#include "interop/exchange/foreign_array.h"
#include "python/extension/import.h"
#include "python/extension/stream.h"
#include "python/extension/tensor.h"

namespace cgtree::python {
namespace {

// A Field is a value of the dict with its name for messages.
struct Field {
  const char* name;
  const char* expected;
  Reference value;  // held, because reading it may run code that changes the dict; may be null

  bool is_given() const noexcept { return value && value.get() != Py_None; }
  [[noreturn]] void refuse(BoundaryFault fault) const {
    throw BoundaryError(
        fault, str_format("'{}' is {}: expected {}", name, describe_value(value.get()), expected));
  }
};

// The keys of the dicts, which are made once.
enum FieldName { kShape, kTypestr, kData, kStrides, kVersion, kStream, kMask };
PyObject* key_of(FieldName key) {
  static const std::array<PyObject*, 7> made = {
      PyUnicode_InternFromString("shape"),   PyUnicode_InternFromString("typestr"),
      PyUnicode_InternFromString("data"),    PyUnicode_InternFromString("strides"),
      PyUnicode_InternFromString("version"), PyUnicode_InternFromString("stream"),
      PyUnicode_InternFromString("mask")};
  return made[key];
}

Field find(PyObject* dict, FieldName key, const char* expected) {
  PyObject* const value = PyDict_GetItemWithError(dict, key_of(key));
  if (value == nullptr && PyErr_Occurred() != nullptr) throw PythonError();
  return {PyUnicode_AsUTF8AndSize(key_of(key), nullptr), expected, Reference::borrow(value)};
}

Field require(PyObject* dict, FieldName key, const char* expected) {
  Field field = find(dict, key, expected);
  if (field.value) return field;
  throw BoundaryError(BoundaryFault::kMissing,
                      str_format("'{}' is missing: expected {}", field.name, expected));
}

std::int64_t integer(const Field& field, PyObject* value) {
  const std::optional<std::int64_t> number = find_int64(value);
  if (!number) field.refuse(BoundaryFault::kWrongType);
  return *number;
}

std::vector<std::int64_t> integers(const Field& field) {
  if (!is_tuple_or_list(field.value.get())) field.refuse(BoundaryFault::kWrongType);
  std::vector<std::int64_t> numbers;
  for_each_item(field.value.get(),
                [&](PyObject* item) { numbers.push_back(integer(field, item)); });
  return numbers;
}

std::uintptr_t address(const Field& field, PyObject* value) {
  if (PyBool_Check(value) || PyIndex_Check(value) == 0) field.refuse(BoundaryFault::kWrongType);
  try {
    return to_address(value, field.name);
  } catch (const InvalidArgument&) {
    field.refuse(BoundaryFault::kWrongValue);
  }
}

TypeString type_in(const Field& field) {
  if (!PyUnicode_Check(field.value.get())) field.refuse(BoundaryFault::kWrongType);
  return parse_type_string(to_text(field.value.get(), field.name));
}

void read_data(const Field& field, CudaArrayInterface& array) {
  if (!is_tuple_or_list(field.value.get())) field.refuse(BoundaryFault::kWrongType);
  const Reference pair = items_of(field.value.get());
  if (PyTuple_Size(pair.get()) != 2) field.refuse(BoundaryFault::kWrongType);
  array.data = address(field, PyTuple_GetItem(pair.get(), 0));
  PyObject* const is_read_only = PyTuple_GetItem(pair.get(), 1);
  if (!PyBool_Check(is_read_only)) field.refuse(BoundaryFault::kWrongType);
  array.read_only = is_read_only == Py_True;
}

PyObject* type_string(DType dtype) {
  static std::array<PyObject*, kDTypeCount> made = {};
  PyObject*& text = made[static_cast<std::size_t>(dtype)];
  if (text == nullptr) text = from_text(type_string_of(dtype).text).release();
  return text;
}

// Reads the fields of the protocol; other keys are ignored. Requires: `dict` is a dict. Throws
// BoundaryError for fields that are missing, of the wrong type or negative, and for masks; and
// exceptions that a value raises.
CudaArrayInterface read_interface(PyObject* dict) {
  CudaArrayInterface array;
  array.shape = integers(require(dict, kShape, "a tuple of integers, one per dimension"));
  array.type = type_in(require(dict, kTypestr, "a string, as '<f4'"));
  read_data(require(dict, kData, "a pair of an address and whether it is read-only"), array);
  const Field version = require(dict, kVersion, "an integer, 0 to 3 or later");
  array.version = integer(version, version.value.get());
  const Field strides = find(dict, kStrides, "None, or a tuple of integers, bytes per dimension");
  if (strides.is_given()) array.strides = integers(strides);
  const Field stream = find(dict, kStream, "None, 1, 2 or a cudaStream_t as an integer");
  if (stream.is_given()) array.stream = address(stream, stream.value.get());
  const Field mask = find(dict, kMask, "None, because masked arrays are not supported");
  if (mask.is_given()) mask.refuse(BoundaryFault::kNotSupported);
  return array;
}

Reference interface_dict(const Tensor& tensor, const CudaArrayInterface& array, bool has_stream) {
  Reference dict = new_dict();
  put(dict, key_of(kShape), from_integers(array.shape));
  put(dict, key_of(kTypestr), type_string(tensor.dtype()));
  const Reference data = to_python(array.data);
  put(dict, key_of(kData),
      checked(PyTuple_Pack(2, data.get(), array.read_only ? Py_True : Py_False)));
  put(dict, key_of(kStrides),
      array.strides ? from_integers(*array.strides) : Reference::borrow(Py_None));
  put(dict, key_of(kVersion), array.version);
  if (has_stream) put(dict, key_of(kStream), array.stream);
  return dict;
}

// ---- Imports ----

constexpr const char* kCudaInterface = "__cuda_array_interface__";

void expect_dict(PyObject* given, const char* attribute) {
  if (PyDict_Check(given)) return;
  throw BoundaryError(BoundaryFault::kWrongType,
                      str_format("'{}' is not a dict, which the protocol says it is", attribute));
}

// Returns the dict of the protocol: the attribute of an object, or the dict itself.
Reference dict_of(PyObject* object, const char* attribute) {
  if (PyDict_Check(object)) return Reference::borrow(object);
  Reference dict = checked(PyObject_GetAttrString(object, attribute));
  expect_dict(dict.get(), attribute);
  return dict;
}

bool is_of_cupy(PyObject* object) {
  const Reference module =
      find_attribute(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__module__");
  return module && PyUnicode_Check(module.get()) &&
         to_text(module.get(), "module").starts_with("cupy");
}

// Keeps the owner, which may be null. The protocol says that the stream lives as long as the array.
// CuPy names its current stream, but its arrays do not keep that stream alive.
std::shared_ptr<void> keep_owner(PyObject* owner, std::optional<std::uintptr_t> stream = {}) {
  if (owner == nullptr) return nullptr;
  const bool is_default = !stream || *stream <= 2;
  if (is_default || !is_of_cupy(owner)) return keep_object(owner);
  const Reference cuda = checked(PyImport_ImportModule("cupy.cuda"));
  const Reference current = checked(PyObject_CallMethod(cuda.get(), "get_current_stream", nullptr));
  return keep_object(checked(PyTuple_Pack(2, owner, current.get())).get());
}

// ---- Exports ----

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

Reference cuda_array_interface(const Tensor& tensor, std::optional<int> version, PyObject* pending,
                               bool is_idle) {
  std::vector<StreamRef> streams;
  if (pending != nullptr)
    for_each_item(pending,
                  [&](PyObject* stream) { streams.push_back(to_stream(stream, tensor.device())); });
  return cuda_dict(tensor, {.pending = streams, .is_idle = is_idle, .version = version});
}

Reference cuda_array_interface_property(const Tensor& tensor) {
  expect_device(tensor, false, kCudaInterface);
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

bool names_a_stream(PyObject* interface) {
  expect_dict(interface, kCudaInterface);
  return find(interface, kStream, "").is_given();
}

Tensor import_cuda_array(PyObject* object, PyObject* owner, const ImportOptions& options) {
  const CudaArrayInterface array = read_interface(dict_of(object, kCudaInterface).get());
  std::shared_ptr<void> kept = keep_owner(owner, array.stream);
  const GilRelease released;
  return from_cuda_array_interface(array, std::move(kept), options);
}

Tensor import_host_array(PyObject* object, PyObject* owner, const ImportOptions& options) {
  const Reference dict = dict_of(object, "__array_interface__");
  ForeignArray array = read_array(read_interface(dict.get()), options.dtype);
  array.device = Device::host();
  array.is_machine_memory = true;
  array.stream.reset();
  array.owner = keep_owner(owner);
  return import_array(std::move(array),
                      {.consumer = StreamRef(Device::host(), StreamHandle::kLegacy)});
}

std::vector<Method> array_interface_methods() {
  return {bind<&cuda_array_interface>("cuda_array_interface")};
}

std::vector<Property> array_interface_properties() {
  return {property<&cuda_array_interface_property>(kCudaInterface),
          property<&array_interface_property>("__array_interface__")};
}

}  // namespace cgtree::python
