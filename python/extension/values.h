// Conversions between Python values and those of C++: element types, devices, integers, tuples.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "interop/device/device.h"
#include "interop/exchange/cuda_array_interface.h"
#include "interop/tensor/dtype.h"
#include "python/extension/errors.h"

namespace cgtree::python {

// All functions throw PythonError for what Python refuses and InvalidArgument for what cgtree
// refuses. `what` names the value in messages.

// Reads an object that has __index__ and is not a bool.
std::int64_t to_int64(PyObject* object, const char* what);
std::uintptr_t to_address(PyObject* object, const char* what);
std::string to_text(PyObject* object, const char* what);
bool to_bool(PyObject* object);
double to_double(PyObject* object);
// Reads a count, or a number of bytes.
std::size_t to_size(PyObject* object, const char* what);
// Reads seconds. What is too long for a clock, also infinity, becomes the longest duration.
std::chrono::microseconds to_microseconds(PyObject* seconds, const char* what);
// Returns the items of a sequence or iterable as a tuple. For a tuple or list it calls no methods
// of its class.
Reference items_of(PyObject* sequence);
// Calls visit(item) for each item of a sequence or iterable.
template <typename Visit>
void for_each_item(PyObject* sequence, const Visit& visit) {
  const Reference items = items_of(sequence);
  for (Py_ssize_t i = 0; i < PyTuple_Size(items.get()); ++i)
    visit(PyTuple_GetItem(items.get(), i));
}
// Calls visit(key, value) for each entry of a dict as it is now: to read a value may run code that
// changes it. Throws InvalidArgument, which says what was expected, for anything but a dict.
template <typename Visit>
void for_each_entry(PyObject* dict, const char* expected, const Visit& visit) {
  if (!PyDict_Check(dict)) throw InvalidArgument(expected);
  const Reference copy = checked(PyDict_Copy(dict));
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(copy.get(), &position, &key, &value) != 0;)
    visit(key, value);
}
// Return a tuple or list of `count` items, of which make(i) makes each.
template <typename Make>
Reference new_tuple(std::size_t count, const Make& make) {
  Reference tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (std::size_t i = 0; i < count; ++i)
    check_status(
        PyTuple_SetItem(tuple.get(), static_cast<Py_ssize_t>(i), Reference(make(i)).release()));
  return tuple;
}
template <typename Make>
Reference new_list(std::size_t count, const Make& make) {
  Reference list = checked(PyList_New(static_cast<Py_ssize_t>(count)));
  for (std::size_t i = 0; i < count; ++i)
    check_status(
        PyList_SetItem(list.get(), static_cast<Py_ssize_t>(i), Reference(make(i)).release()));
  return list;
}
// Reads the name of one of these values.
template <typename Value, std::size_t count>
Value to_choice(PyObject* object, const char* what,
                const std::pair<std::string_view, Value> (&choices)[count]) {
  const std::string given = to_text(object, what);
  std::string names;
  for (const auto& [name, value] : choices) {
    if (name == given) return value;
    names += (names.empty() ? "'" : ", '") + std::string(name) + "'";
  }
  throw InvalidArgument(std::string(what) + " is '" + given + "': expected one of " + names);
}
// Reads a sequence of integers, or one integer.
std::vector<std::int64_t> to_integers(PyObject* object, const char* what);

// Reads "float32", "f4", "<f4", a NumPy dtype or scalar type, a dtype of PyTorch, or an object
// whose `name` or `__name__` is the name of a dtype.
DType to_dtype(PyObject* object);
// Reads "cuda:1", "host", "auto", or a pair of DLPack's numbers.
Device to_device(PyObject* object);
// None gives nullopt.
std::optional<Device> to_optional_device(PyObject* object);
// Returns the device for empty(): `given` if there is one; nullopt inside a step function, which
// allocates from the pool; otherwise the device of the current stream, or the best device.
std::optional<Device> device_for_empty(std::optional<Device> given);

// Reads a field of an array interface for the parser and for messages.
InterfaceValue to_interface_value(PyObject* object);
// Requires: `dict` is a dict.
InterfaceEntries to_interface_entries(PyObject* dict);

Reference from_text(std::string_view text);
Reference from_integers(std::span<const std::int64_t> values, std::int64_t factor = 1);

// Returns the attribute, or null if the object does not have it. Throws other errors.
Reference find_attribute(PyObject* object, const char* name);

// A Signature says which arguments a function takes.
template <std::size_t count>
struct Signature {
  const char* function;
  std::array<const char*, count> names;
  std::size_t needed = 0;           // so many of the first ones must be given
  std::size_t by_position = count;  // so many of the first ones may be given without their names
};
// Reads arguments; those that are not given are null, and so is None for those that need not be.
// Throws TypeError for others than the signature has, and InvalidArgument if one is missing.
void read_arguments(PyObject* arguments, PyObject* keywords, const char* function,
                    std::span<const char* const> names, std::size_t needed, std::size_t by_position,
                    PyObject** read);
template <std::size_t count>
std::array<PyObject*, count> read_arguments(PyObject* arguments, PyObject* keywords,
                                            const Signature<count>& signature) {
  std::array<PyObject*, count> read = {};
  read_arguments(arguments, keywords, signature.function, signature.names, signature.needed,
                 signature.by_position, read.data());
  return read;
}
// Returns the value of a keyword, or null if it was not given or is None.
PyObject* find_keyword(PyObject* keywords, const char* name);

}  // namespace cgtree::python
