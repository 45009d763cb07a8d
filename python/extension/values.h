// Conversions between Python values and those of C++: element types, devices, integers, tuples.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "interop/device/device.h"
#include "interop/tensor/dtype.h"
#include "python/extension/errors.h"

namespace cgtree::python {

// All functions throw PythonError for errors of Python and InvalidArgument for values that cgtree
// refuses.

// Reads an object that has __index__ and is not a bool.
std::int64_t to_int64(PyObject* object, const char* what);
// Reads an integer of 64 bits without a sign. This type differs from that of counts.
using Word = unsigned long long;
Word to_address(PyObject* object, const char* what);
std::string to_text(PyObject* object, const char* what);
bool to_bool(PyObject* object);
double to_double(PyObject* object, const char* what);
int to_int(PyObject* object, const char* what);
// Reads a count, or a number of bytes.
std::size_t to_size(PyObject* object, const char* what);
const void* to_pointer(PyObject* object, const char* what);
// Reads a function, which is called while the object lives; null for none.
struct Callable {
  PyObject* object = nullptr;
};
Callable to_callable(PyObject* object, const char* what);
// Reads seconds. A duration too long for a clock, also infinity, becomes the longest duration.
std::chrono::microseconds to_microseconds(PyObject* seconds, const char* what);
std::chrono::milliseconds to_milliseconds(PyObject* seconds, const char* what);  // rounded up
// Returns the items of a sequence or iterable as a tuple. For a tuple or list it calls no methods
// of the class.
Reference items_of(PyObject* sequence);
// Returns the `count` items of a tuple or list. Throws InvalidArgument for more or fewer.
Reference items_of(PyObject* sequence, const char* what, std::size_t count);
// Throws InvalidArgument for anything but a dict.
Reference copy_of_dict(PyObject* dict, const char* what);
// Calls visit(item) for each item of a sequence or iterable.
template <typename Visit>
void for_each_item(PyObject* sequence, const Visit& visit) {
  const Reference items = items_of(sequence);
  for (Py_ssize_t i = 0; i < PyTuple_Size(items.get()); ++i)
    visit(PyTuple_GetItem(items.get(), i));
}
// Calls visit(key, value) for each entry of a dict as it is now: reading a value may run code that
// changes the dict.
template <typename Visit>
void for_each_entry(PyObject* dict, const char* what, const Visit& visit) {
  const Reference copy = copy_of_dict(dict, what);
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(copy.get(), &position, &key, &value) != 0;)
    visit(key, value);
}
// Return a tuple or list of `count` items, of which make(i) makes each.
template <auto create, auto set, typename Make>
Reference new_sequence(std::size_t count, const Make& make) {
  Reference sequence = checked(create(static_cast<Py_ssize_t>(count)));
  for (std::size_t i = 0; i < count; ++i)
    check_status(set(sequence.get(), static_cast<Py_ssize_t>(i), Reference(make(i)).release()));
  return sequence;
}
template <typename Make>
Reference new_tuple(std::size_t count, const Make& make) {
  return new_sequence<PyTuple_New, PyTuple_SetItem>(count, make);
}
template <typename Make>
Reference new_list(std::size_t count, const Make& make) {
  return new_sequence<PyList_New, PyList_SetItem>(count, make);
}
// Reads a sequence of integers, or one integer.
std::vector<std::int64_t> to_integers(PyObject* object, const char* what);

// Reads "float32", "f4", "<f4", a NumPy dtype or scalar type, a dtype of PyTorch, or an object
// whose `name` or `__name__` is the name of a dtype.
DType to_dtype(PyObject* object);
// Reads "cuda:1", "host", "auto", or a pair of DLPack's numbers.
Device to_device(PyObject* object);
// Returns the device for empty(): `given` if there is one; nullopt inside a step function, which
// allocates from the pool; otherwise the device of the current stream, or the best device.
std::optional<Device> device_for_empty(std::optional<Device> given);

// Returns whether the type has only integers that int64 has, too.
inline bool has_integers(DType dtype) noexcept {
  return dtype > DType::kBool && dtype < DType::kUInt64;
}
// Requires: has_integers(dtype).
inline bool is_in_range(std::int64_t value, DType dtype) noexcept {
  const bool is_signed = dtype <= DType::kInt64;
  const std::size_t bits = 8 * size_of(dtype) - (is_signed ? 1 : 0);
  const std::int64_t rest = bits >= 63 ? 0 : value >> bits;
  return rest == 0 || (is_signed && rest == -1);
}
// Returns nullopt for an object that is not a 64-bit integer, and for a bool.
std::optional<std::int64_t> find_int64(PyObject* object);
bool is_tuple_or_list(PyObject* object);
// Returns a short text of the value for a message.
std::string describe_value(PyObject* object);

Reference from_text(std::string_view text);
Reference from_bytes(std::span<const std::byte> bytes);
Reference from_integers(std::span<const std::int64_t> values, std::int64_t factor = 1);

// Returns the attribute, or null if the object does not have it. Throws other errors.
Reference find_attribute(PyObject* object, const char* name);

// ---- Casters: the conversion of an argument of each type, and of a result ----

// Caster<T>::from(object, what) reads a value; Caster<T>::to(value) makes an object from a value.
// Types of other files have their casters there.
template <typename T>
struct Caster;
template <auto read>
struct ReadBy {
  static auto from(PyObject* object, const char* what) {
    if constexpr (std::is_invocable_v<decltype(read), PyObject*, const char*>) {
      return read(object, what);
    } else {
      return read(object);
    }
  }
};
template <>
struct Caster<bool> : ReadBy<to_bool> {};
template <>
struct Caster<double> : ReadBy<to_double> {};
template <>
struct Caster<std::int64_t> : ReadBy<to_int64> {};
template <>
struct Caster<int> : ReadBy<to_int> {};
template <>
struct Caster<std::size_t> : ReadBy<to_size> {};
template <>
struct Caster<Word> : ReadBy<to_address> {};
template <>
struct Caster<const void*> : ReadBy<to_pointer> {};
template <>
struct Caster<std::string> : ReadBy<to_text> {};
template <>
struct Caster<std::chrono::microseconds> : ReadBy<to_microseconds> {};
template <>
struct Caster<std::chrono::milliseconds> : ReadBy<to_milliseconds> {};
template <>
struct Caster<std::vector<std::int64_t>> : ReadBy<to_integers> {};
template <>
struct Caster<DType> : ReadBy<to_dtype> {};
template <>
struct Caster<Callable> : ReadBy<to_callable> {};
template <>
struct Caster<Device> : ReadBy<to_device> {
  static Reference to(Device device) { return from_text(to_string(device)); }
};
template <typename T>
struct Caster<std::optional<T>> {
  static std::optional<T> from(PyObject* object, const char* what) {
    if (object == nullptr || object == Py_None) return std::nullopt;
    return Caster<T>::from(object, what);
  }
};
template <typename T>
struct Caster<std::vector<T>> {
  static std::vector<T> from(PyObject* object, const char* what) {
    std::vector<T> values;
    for_each_item(object, [&](PyObject* item) { values.push_back(Caster<T>::from(item, what)); });
    return values;
  }
};
// Valid as long as the argument that passed the object.
template <>
struct Caster<PyObject*> {
  static PyObject* from(PyObject* object, const char*) { return object; }
};
// A tuple or list with one item for each type.
template <typename... T>
struct Caster<std::tuple<T...>> {
  static std::tuple<T...> from(PyObject* object, const char* what) {
    const Reference items = items_of(object, what, sizeof...(T));
    return [&]<Py_ssize_t... i>(std::integer_sequence<Py_ssize_t, i...>) {
      return std::tuple<T...>{Caster<T>::from(PyTuple_GetItem(items.get(), i), what)...};
    }
    (std::make_integer_sequence<Py_ssize_t, sizeof...(T)>());
  }
};
// A dict.
template <typename K, typename V>
struct Caster<std::vector<std::pair<K, V>>> {
  static std::vector<std::pair<K, V>> from(PyObject* object, const char* what) {
    std::vector<std::pair<K, V>> entries;
    for_each_entry(object, what, [&](PyObject* key, PyObject* value) {
      entries.emplace_back(Caster<K>::from(key, what), Caster<V>::from(value, what));
    });
    return entries;
  }
};
template <>
struct Caster<std::variant<std::int64_t, std::string>> {
  static std::variant<std::int64_t, std::string> from(PyObject* object, const char* what) {
    if (PyUnicode_Check(object)) return to_text(object, what);
    return to_int64(object, what);
  }
};
// Reads the name of one of the values.
std::size_t to_choice(PyObject* object, const char* what, std::span<const std::string_view> names);
template <typename Value, std::size_t count>
Value to_choice(PyObject* object, const char* what,
                const std::pair<std::string_view, Value> (&choices)[count]) {
  std::array<std::string_view, count> names;
  std::ranges::transform(choices, names.begin(), [](const auto& each) { return each.first; });
  return choices[to_choice(object, what, names)].second;
}

// Returns the value of an argument; null, an argument that was not given, is T().
template <typename T>
T argument(PyObject* object, const char* what) {
  if constexpr (std::is_same_v<T, PyObject*>) {
    return object;
  } else {
    return object == nullptr ? T() : Caster<T>::from(object, what);
  }
}

// Makes an object of a value.
template <typename T>
Reference to_python(T&& value) {
  using Value = std::decay_t<T>;
  if constexpr (std::is_same_v<Value, Reference>) {
    return std::forward<T>(value);
  } else if constexpr (std::is_same_v<Value, PyObject*>) {
    return Reference::borrow(value);
  } else if constexpr (std::is_same_v<Value, bool>) {
    return Reference::borrow(value ? Py_True : Py_False);
  } else if constexpr (std::is_integral_v<Value> && std::is_signed_v<Value>) {
    return checked(PyLong_FromLongLong(value));
  } else if constexpr (std::is_integral_v<Value>) {
    return checked(PyLong_FromUnsignedLongLong(value));
  } else if constexpr (std::is_floating_point_v<Value>) {
    return checked(PyFloat_FromDouble(value));
  } else if constexpr (std::is_convertible_v<const Value&, std::string_view>) {
    return from_text(value);
  } else if constexpr (std::is_convertible_v<const Value&, const void*>) {
    return checked(PyLong_FromVoidPtr(const_cast<void*>(static_cast<const void*>(value))));
  } else if constexpr (requires { Caster<Value>::to(std::forward<T>(value)); }) {
    return Caster<Value>::to(std::forward<T>(value));
  } else if constexpr (requires { value.has_value(); }) {
    return value ? to_python(*std::forward<T>(value)) : Reference::borrow(Py_None);
  } else {
    return new_list(std::size(value),
                    [&](std::size_t i) { return to_python(std::move(value[i])); });
  }
}
// Return a tuple of the values, and a dict of names with values: ("bytes", 1, "text", "a").
template <typename... Values>
Reference pack(Values&&... values) {
  std::array<Reference, sizeof...(Values)> made = {to_python(std::forward<Values>(values))...};
  return new_tuple(made.size(), [&](std::size_t i) { return std::move(made[i]); });
}
template <typename Value>
void put(const Reference& dict, PyObject* key, Value&& value) {
  check_status(PyDict_SetItem(dict.get(), key, to_python(std::forward<Value>(value)).get()));
}
template <typename Key, typename Value>
void put(const Reference& dict, Key&& key, Value&& value) {
  put(dict, to_python(std::forward<Key>(key)).get(), std::forward<Value>(value));
}
template <typename Value, typename... Pairs>
void put_all(const Reference& dict, const char* key, Value&& value, Pairs&&... pairs) {
  put(dict, key, std::forward<Value>(value));
  if constexpr (sizeof...(Pairs) > 0) put_all(dict, std::forward<Pairs>(pairs)...);
}
template <typename... Pairs>
Reference new_dict(Pairs&&... pairs) {
  Reference dict = checked(PyDict_New());
  if constexpr (sizeof...(Pairs) > 0) put_all(dict, std::forward<Pairs>(pairs)...);
  return dict;
}
// Calls a function of Python with these arguments.
template <typename... Values>
Reference call_with(PyObject* function, Values&&... values) {
  return call_python(function, pack(std::forward<Values>(values)...).get());
}

}  // namespace cgtree::python
