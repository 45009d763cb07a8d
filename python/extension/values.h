// From Python's values to ours and back: element types, devices, integers, tuples.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "interop/device/device.h"
#include "interop/tensor/dtype.h"
#include "interop/exchange/cuda_array_interface.h"
#include "python/extension/errors.h"

namespace cgtree::python {

// All throw PythonError for what Python refuses, InvalidArgument for what we do.

// Whatever counts as an integer: has __index__, and is no bool. `what` is for messages.
std::int64_t to_int64(PyObject* object, const char* what);
std::uintptr_t to_address(PyObject* object, const char* what);
std::string to_text(PyObject* object, const char* what);
bool to_bool(PyObject* object);
double to_double(PyObject* object);
// Not negative: a count, or bytes.
std::size_t to_size(PyObject* object, const char* what);
// From seconds; what is too long for a clock, infinity too, is the longest there is.
std::chrono::microseconds to_microseconds(PyObject* seconds, const char* what);
// The items as a tuple. Of a tuple or list without asking the methods that its class may have; of
// what else can be iterated over, all.
Reference items_of(PyObject* sequence);
// A sequence of integers, or one of them.
std::vector<std::int64_t> to_integers(PyObject* object, const char* what);

// "float32", "f4", "<f4", a NumPy dtype or scalar type, or anything else whose `name` or `__name__`
// is the name of one; a type of PyTorch by its text.
DType to_dtype(PyObject* object);
// "cuda:1", "host", "auto", or a pair of DLPack's numbers.
Device to_device(PyObject* object);
// None is none.
std::optional<Device> to_optional_device(PyObject* object);
// Where empty() takes memory if `given` does not say: none inside a step function, whose memory is
// the pool's; outside the current stream's device, else the best.
std::optional<Device> device_for_empty(std::optional<Device> given);

// An object of a protocol as the value it is, for messages and for the parser.
InterfaceValue to_interface_value(PyObject* object);
// Requires a dict.
InterfaceEntries to_interface_entries(PyObject* dict);

Reference from_text(std::string_view text);
Reference from_integers(std::span<const std::int64_t> values, std::int64_t factor = 1);

// The attribute, or nothing where the object has none; other errors are thrown.
Reference find_attribute(PyObject* object, const char* name);

// Argument `i`, by position or by name; null where it was not given.
PyObject* argument(PyObject* arguments, Py_ssize_t i, PyObject* keywords, const char* name);
// What a keyword was given; null where it was not, or None was.
PyObject* find_keyword(PyObject* keywords, const char* name);
// Throws TypeError for a keyword that is not among `names`.
void expect_keywords(PyObject* keywords, std::span<const char* const> names, const char* function);

}  // namespace cgtree::python
