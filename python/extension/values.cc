// Converts Python values, and checks each of them first.
#include "python/extension/values.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/format.h"
#include "interop/device/device.h"
#include "interop/device/stream.h"
#include "interop/exchange/type_string.h"
#include "interop/tensor/empty.h"

namespace cgtree::python {
namespace {

std::string type_name(PyObject* object) {
  const Reference name =
      checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__name__"));
  return to_text(name.get(), "a type's name");
}

[[noreturn]] void refuse_type(PyObject* object, const char* what, const char* expected) {
  PyErr_Format(PyExc_TypeError, "%s is of type %s: expected %s", what, type_name(object).c_str(),
               expected);
  throw PythonError();
}

std::optional<DType> dtype_named(std::string_view text) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (name(static_cast<DType>(i)) == text) return static_cast<DType>(i);
  }
  return std::nullopt;
}

// The texts "torch.float32" and "<class 'float'>" are not dtypes here.
std::optional<DType> dtype_of_text(std::string_view text) {
  if (const std::size_t dot = text.rfind('.'); dot != std::string_view::npos) {
    text.remove_prefix(dot + 1);
  }
  if (const auto named = dtype_named(text)) return named;
  if (text == "bool_") return DType::kBool;
  if (text.empty() || text.size() > 4) return std::nullopt;  // "<c16"
  const bool has_order = std::string_view("<|=>").find(text.front()) != std::string_view::npos;
  try {
    return parse_type_string(has_order ? std::string(text) : str_format("={}", text)).dtype;
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

std::string all_dtypes() {
  std::string names;
  for (int i = 0; i < kDTypeCount; ++i)
    names += str_format("{}{}", i == 0 ? "" : ", ", name(static_cast<DType>(i)));
  return names;
}

[[noreturn]] void refuse_large(PyObject* number, const char* what, const char* range) {
  PyErr_Clear();
  const Reference text = Reference::steal(PyObject_Str(number));
  PyErr_Clear();  // Python refuses to print the longest
  throw InvalidArgument(str_format(
      "{} is {}: expected {}", what,
      text ? to_text(text.get(), "an integer") : "an integer of thousands of digits", range));
}

// Requires: `object` is an int.
std::int64_t value_of_long(PyObject* number, const char* what) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow != 0) refuse_large(number, what, "a signed integer of 64 bits");
  if (value == -1 && PyErr_Occurred() != nullptr) throw PythonError();
  return value;
}

}  // namespace

std::int64_t to_int64(PyObject* object, const char* what) {
  if (PyLong_CheckExact(object)) [[likely]]
    return value_of_long(object, what);
  if (PyBool_Check(object) || PyIndex_Check(object) == 0) refuse_type(object, what, "an integer");
  const Reference number = checked(PyNumber_Index(object));
  return value_of_long(number.get(), what);
}

Word to_address(PyObject* object, const char* what) {
  if (PyBool_Check(object) || PyIndex_Check(object) == 0) (void)to_int64(object, what);  // throws
  const Reference number = checked(PyNumber_Index(object));
  const Word value = PyLong_AsUnsignedLongLong(number.get());
  if (PyErr_Occurred() != nullptr) {
    refuse_large(number.get(), what, "an integer from 0 on, of at most 64 bits");
  }
  return value;
}

const void* to_pointer(PyObject* object, const char* what) {
  return reinterpret_cast<const void*>(to_address(object, what));
}

Callable to_callable(PyObject* object, const char* what) {
  if (PyCallable_Check(object) == 0) refuse_type(object, what, "a function");
  return {object};
}

std::string to_text(PyObject* object, const char* what) {
  if (!PyUnicode_Check(object)) refuse_type(object, what, "a str");
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(object, &size);
  if (text != nullptr) return {text, static_cast<std::size_t>(size)};
  PyErr_Clear();  // it has halves of characters
  const Reference bytes = checked(PyUnicode_AsEncodedString(object, "utf-8", "backslashreplace"));
  return {PyBytes_AsString(bytes.get()), static_cast<std::size_t>(PyBytes_Size(bytes.get()))};
}

bool to_bool(PyObject* object) {
  const int is_true = PyObject_IsTrue(object);
  check_status(is_true);
  return is_true != 0;
}

double to_double(PyObject* object, const char* what) {
  if (PyNumber_Check(object) == 0) refuse_type(object, what, "a number");
  const double value = PyFloat_AsDouble(object);
  if (value == -1.0 && PyErr_Occurred() != nullptr) throw PythonError();
  return value;
}

std::size_t to_size(PyObject* object, const char* what) {
  const std::int64_t value = to_int64(object, what);
  if (value < 0) throw InvalidArgument(str_format("{} is {}: it is negative", what, value));
  return static_cast<std::size_t>(value);
}

int to_int(PyObject* object, const char* what) {
  const std::int64_t value = to_int64(object, what);
  if (value == static_cast<int>(value)) return static_cast<int>(value);
  throw InvalidArgument(str_format("{} is {}: expected an integer of 32 bits", what, value));
}

std::chrono::microseconds to_microseconds(PyObject* seconds, const char* what) {
  const double given = to_double(seconds, what);
  if (!(given >= 0)) {
    throw InvalidArgument(str_format("{} is {}: expected seconds, 0 or more", what, given));
  }
  constexpr auto kLongest = std::chrono::microseconds::max();
  const double wanted = given * 1e6;
  if (wanted >= static_cast<double>(kLongest.count())) return kLongest;
  return std::chrono::microseconds(static_cast<std::int64_t>(wanted));
}

std::chrono::milliseconds to_milliseconds(PyObject* seconds, const char* what) {
  return std::chrono::ceil<std::chrono::milliseconds>(to_microseconds(seconds, what));
}

Reference items_of(PyObject* sequence, const char* what, std::size_t count) {
  if (!is_tuple_or_list(sequence)) refuse_type(sequence, what, "a tuple");
  Reference items = items_of(sequence);
  const auto found = static_cast<std::size_t>(PyTuple_Size(items.get()));
  if (found == count) return items;
  throw InvalidArgument(str_format("{} has {} items: expected {}", what, found, count));
}

Reference copy_of_dict(PyObject* dict, const char* what) {
  if (PyDict_Check(dict)) return checked(PyDict_Copy(dict));
  throw InvalidArgument(str_format("{} is of type {}: expected a dict", what, type_name(dict)));
}

Reference items_of(PyObject* sequence) {
  if (PyTuple_Check(sequence)) return Reference::borrow(sequence);
  return checked(PyList_Check(sequence) ? PyList_AsTuple(sequence) : PySequence_Tuple(sequence));
}

std::vector<std::int64_t> to_integers(PyObject* object, const char* what) {
  if (PyIndex_Check(object) != 0) return {to_int64(object, what)};
  std::vector<std::int64_t> values;
  for_each_item(object, [&](PyObject* item) { values.push_back(to_int64(item, what)); });
  return values;
}

DType to_dtype(PyObject* object) {
  Reference text = Reference::borrow(object);
  if (!PyUnicode_Check(object)) {
    text = find_attribute(object, "name");
    if (!text || !PyUnicode_Check(text.get())) text = find_attribute(object, "__name__");
    if (!text || !PyUnicode_Check(text.get())) {
      // The only name of a PyTorch dtype is its text. The text of other objects may be of any
      // length.
      const std::string type = type_name(object);
      text = type == "dtype" ? checked(PyObject_Str(object))
                             : from_text(str_format("an object of type {}", type));
    }
  }
  const std::string given = to_text(text.get(), "dtype");
  if (const auto dtype = dtype_of_text(given)) return *dtype;
  throw InvalidArgument(str_format("dtype is '{}': expected one of {}", given, all_dtypes()));
}

Device to_device(PyObject* object) {
  if (PyUnicode_Check(object)) return parse_device(to_text(object, "device"));
  const std::vector<std::int64_t> pair = to_integers(object, "device");
  const auto fits = [](std::int64_t number) { return number >= 0 && number <= INT32_MAX; };
  if (pair.size() == 2 && fits(pair[0]) && fits(pair[1])) {
    const bool is_host = pair[0] == 3;  // pinned
    return is_host ? Device::host()
                   : Device{static_cast<DeviceType>(pair[0]), static_cast<std::int32_t>(pair[1])};
  }
  throw InvalidArgument(str_format(
      "device is ({}): expected text like 'cuda:0', or DLPack's two numbers", joined(pair, ", ")));
}

std::optional<Device> device_for_empty(std::optional<Device> given) {
  if (given || current_allocator() != nullptr) return given;
  const StreamRef current = current_stream_or_none();
  return current ? current.device() : Device::best();
}

std::optional<std::int64_t> find_int64(PyObject* object) {
  if (PyBool_Check(object) || PyIndex_Check(object) == 0) return std::nullopt;
  const Reference number = checked(PyNumber_Index(object));
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
  if (overflow != 0) return std::nullopt;
  if (value == -1 && PyErr_Occurred() != nullptr) throw PythonError();
  return value;
}

bool is_tuple_or_list(PyObject* object) {
  return PyTuple_Check(object) || PyList_Check(object);
}

namespace {

constexpr std::size_t kMaxText = 60;  // characters
constexpr Py_ssize_t kMaxItems = 10;

// Python refuses to print the longest integers. Objects of other types run their own code.
std::string describe_item(PyObject* object) {
  const bool is_plain = object == Py_None || PyBool_Check(object) || PyLong_CheckExact(object) ||
                        PyFloat_CheckExact(object) || PyUnicode_CheckExact(object);
  const Reference text = Reference::steal(is_plain ? PyObject_Repr(object) : nullptr);
  PyErr_Clear();
  if (!text) return str_format("an object of type '{}'", type_name(object));
  const std::string whole = to_text(text.get(), "a value");
  return whole.size() > kMaxText ? whole.substr(0, kMaxText) + "..." : whole;
}

}  // namespace

std::string describe_value(PyObject* object) {
  if (!is_tuple_or_list(object)) return describe_item(object);
  const Reference items = items_of(object);
  const Py_ssize_t count = PyTuple_Size(items.get());
  std::string text = "(";
  for (Py_ssize_t i = 0; i < std::min(count, kMaxItems); ++i)
    text += (i == 0 ? "" : ", ") + describe_item(PyTuple_GetItem(items.get(), i));
  if (count > kMaxItems) return text + str_format(", ... {} in all)", count);
  return text + (count == 1 ? ",)" : ")");
}

Reference from_text(std::string_view text) {
  return checked(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

Reference from_bytes(std::span<const std::byte> bytes) {
  return checked(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(bytes.data()),
                                           static_cast<Py_ssize_t>(bytes.size())));
}

Reference from_integers(std::span<const std::int64_t> values, std::int64_t factor) {
  return new_tuple(values.size(), [&](std::size_t i) {
    std::int64_t product = 0;  // no consumer accepts strides this large
    if (__builtin_mul_overflow(values[i], factor, &product)) product = INT64_MAX;
    return checked(PyLong_FromLongLong(product));
  });
}

Reference find_attribute(PyObject* object, const char* name) {
  PyObject* const found = PyObject_GetAttrString(object, name);
  if (found != nullptr) return Reference::steal(found);
  if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw PythonError();
  PyErr_Clear();
  return {};
}

std::size_t to_choice(PyObject* object, const char* what, std::span<const std::string_view> names) {
  const std::string given = to_text(object, what);
  const auto found = std::ranges::find(names, given);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  throw InvalidArgument(
      str_format("{} is '{}': expected one of '{}'", what, given, joined(names, "', '")));
}

}  // namespace cgtree::python
