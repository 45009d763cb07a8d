// Reads the entries of a dict in turn, and checks the type of each.
#include "python/extension/array_interface.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

// An Entry is a value of the dict, as messages name it.
struct Entry {
  const char* name;
  const char* expected;
  Reference value;  // held, because to read it may run code that changes the dict; may be null

  bool is_given() const noexcept { return value && value.get() != Py_None; }
  [[noreturn]] void refuse(BoundaryFault fault) const {
    throw BoundaryError(
        fault, fmt::format("'{}' is {}: expected {}", name, describe_value(value.get()), expected));
  }
};

// The keys of the dicts, which are made once.
enum Key { kShape, kTypestr, kData, kStrides, kVersion, kStream, kMask };
PyObject* key_of(Key key) {
  static const std::array<PyObject*, 7> made = {
      PyUnicode_InternFromString("shape"),   PyUnicode_InternFromString("typestr"),
      PyUnicode_InternFromString("data"),    PyUnicode_InternFromString("strides"),
      PyUnicode_InternFromString("version"), PyUnicode_InternFromString("stream"),
      PyUnicode_InternFromString("mask")};
  return made[key];
}

Entry find(PyObject* dict, Key key, const char* expected) {
  PyObject* const value = PyDict_GetItemWithError(dict, key_of(key));
  if (value == nullptr && PyErr_Occurred() != nullptr) throw PythonError();
  return {PyUnicode_AsUTF8AndSize(key_of(key), nullptr), expected, Reference::borrow(value)};
}

Entry require(PyObject* dict, Key key, const char* expected) {
  Entry entry = find(dict, key, expected);
  if (entry.value) return entry;
  throw BoundaryError(BoundaryFault::kMissing,
                      fmt::format("'{}' is missing: expected {}", entry.name, expected));
}

std::int64_t integer(const Entry& entry, PyObject* value) {
  const std::optional<std::int64_t> number = find_int64(value);
  if (!number) entry.refuse(BoundaryFault::kWrongType);
  return *number;
}

std::vector<std::int64_t> integers(const Entry& entry) {
  if (!is_tuple_or_list(entry.value.get())) entry.refuse(BoundaryFault::kWrongType);
  std::vector<std::int64_t> numbers;
  for_each_item(entry.value.get(),
                [&](PyObject* item) { numbers.push_back(integer(entry, item)); });
  return numbers;
}

// Reads an integer of 64 bits without a sign.
std::uintptr_t address(const Entry& entry, PyObject* value) {
  if (PyBool_Check(value) || PyIndex_Check(value) == 0) entry.refuse(BoundaryFault::kWrongType);
  const Reference number = checked(PyNumber_Index(value));
  const unsigned long long read = PyLong_AsUnsignedLongLong(number.get());
  if (PyErr_Occurred() == nullptr) return read;
  PyErr_Clear();  // it is negative, or has more than 64 bits
  entry.refuse(BoundaryFault::kWrongValue);
}

TypeString type_of(const Entry& entry) {
  if (!PyUnicode_Check(entry.value.get())) entry.refuse(BoundaryFault::kWrongType);
  return parse_type_string(to_text(entry.value.get(), entry.name));
}

void read_data(const Entry& entry, CudaArrayInterface& array) {
  if (!is_tuple_or_list(entry.value.get())) entry.refuse(BoundaryFault::kWrongType);
  const Reference pair = items_of(entry.value.get());
  if (PyTuple_Size(pair.get()) != 2) entry.refuse(BoundaryFault::kWrongType);
  array.data = address(entry, PyTuple_GetItem(pair.get(), 0));
  PyObject* const is_read_only = PyTuple_GetItem(pair.get(), 1);
  if (!PyBool_Check(is_read_only)) entry.refuse(BoundaryFault::kWrongType);
  array.read_only = is_read_only == Py_True;
}

PyObject* type_string(DType dtype) {
  static std::array<PyObject*, kDTypeCount> made = {};
  PyObject*& text = made[static_cast<std::size_t>(dtype)];
  if (text == nullptr) text = from_text(type_string_of(dtype).text).release();
  return text;
}

}  // namespace

CudaArrayInterface read_interface(PyObject* dict) {
  CudaArrayInterface array;
  array.shape = integers(require(dict, kShape, "a tuple of integers, one per dimension"));
  array.type = type_of(require(dict, kTypestr, "a string, as '<f4'"));
  read_data(require(dict, kData, "a pair of an address and whether it is read-only"), array);
  const Entry version = require(dict, kVersion, "an integer, 0 to 3 or later");
  array.version = integer(version, version.value.get());
  const Entry strides = find(dict, kStrides, "None, or a tuple of integers, bytes per dimension");
  if (strides.is_given()) array.strides = integers(strides);
  const Entry stream = find(dict, kStream, "None, 1, 2 or a cudaStream_t as an integer");
  if (stream.is_given()) array.stream = address(stream, stream.value.get());
  const Entry mask = find(dict, kMask, "None, because masked arrays are not supported");
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

}  // namespace cgtree::python
