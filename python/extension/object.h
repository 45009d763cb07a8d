// Entries of the extension: C++ functions with C++ arguments and results, and types whose objects
// hold a C++ value. Names, defaults and docstrings of entries are those of cgtree/_cgtree.pyi.
// Files with entries get errors.h, python.h and values.h from here.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/extension/errors.h"
#include "python/extension/values.h"

namespace cgtree::python {

// ---- Signatures (signatures.cc) ----

// Returns "trim" of "Context.trim".
inline const char* last_part(const char* name) noexcept {
  const char* const dot = std::strrchr(name, '.');
  return dot == nullptr ? name : dot + 1;
}

// The signature of a function or class, or the docstring of a property.
struct Signature {
  std::string_view name;  // "Context.trim"
  const char* doc = nullptr;
  std::size_t count = 0;        // number of the names
  std::size_t needed = 0;       // number of the first names that must be given
  std::size_t by_position = 0;  // number of the first names that may be given by position
  bool has_rest = false;        // more arguments may be given by position: *arguments
  bool has_others = false;      // others may be given by name: **keywords
  std::array<const char*, 10> names = {};
  std::array<PyObject*, 10> interned = {};  // the names as Python compares them

  const char* function() const noexcept { return last_part(name.data()); }
};
// Throws Error for an entry that the stub does not have, and PythonError.
const Signature& signature_of(std::string_view owner, std::string_view name);

// The arguments of a call, as Python passes them.
struct Passed {
  std::span<PyObject* const> positional;
  std::span<PyObject* const> named;
  PyObject* names = nullptr;  // a tuple, of `named`
};

// Parameters of these types take the arguments that the signature does not name.
using Rest = std::span<PyObject* const>;
struct Others {
  Reference dict;  // null for none
};

// Reads arguments by the signature; `read` has a place for each of its names. An argument that is
// not given is null, and so is None for an optional one. Throws TypeError for arguments that the
// signature does not have, and InvalidArgument if one is missing.
void read_arguments(const Signature& signature, const Passed& passed, PyObject** read,
                    Others& others);

// A PassedTuple converts the arguments of constructors and tp_call to Passed.
struct PassedTuple {
  PassedTuple(PyObject* arguments, PyObject* keywords);

  std::vector<PyObject*> values;
  Reference names;
  Passed passed;
};

// ---- Types ----

template <typename Value>
struct Object {
  PyObject ob_base;
  Value value;
};

// The type whose objects hold a Value; it lives as long as the process.
template <typename Value>
inline PyTypeObject* type_of = nullptr;

// Requires: `self` was made by make_object<Value>().
template <typename Value>
Value& value_of(PyObject* self) noexcept {
  return reinterpret_cast<Object<Value>*>(self)->value;
}
template <typename Value>
bool is_object(PyObject* object) noexcept {
  return PyObject_TypeCheck(object, type_of<Value>) != 0;
}
// Throws TypeError, which names `what`, the expected type, and the type of the object.
[[noreturn]] void refuse_object(PyObject* object, const char* what, PyTypeObject* expected);
template <typename Value>
Value& expect_object(PyObject* object, const char* what) {
  if (!is_object<Value>(object)) refuse_object(object, what, type_of<Value>);
  return value_of<Value>(object);
}

template <typename Value>
struct Caster<Value*> {
  static Value* from(PyObject* object, const char* what) {
    return &expect_object<Value>(object, what);
  }
};

template <typename Value, typename... Arguments>
Reference make_object(PyTypeObject* type, Arguments&&... arguments) {
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  Reference self = checked(allocate(type, 0));
  new (&value_of<Value>(self.get())) Value(std::forward<Arguments>(arguments)...);
  return self;
}
template <typename Value, typename... Arguments>
Reference new_object(Arguments&&... arguments) {
  return make_object<Value>(type_of<Value>, std::forward<Arguments>(arguments)...);
}

// ---- Functions: those of library objects run without the lock ----

// A Receiver finds the library's object in a Python object. Specialized for classes that are held
// by other values.
template <typename Class>
struct Receiver {
  static constexpr bool kIsUnlocked = false;
  static Class* of(PyObject* self) { return &value_of<Class>(self); }
};

template <>
struct Receiver<PyObject*> {
  static constexpr bool kIsUnlocked = false;
  static PyObject** of(PyObject*& self) { return &self; }
};

template <typename... Types>
struct TypeList {};

// The parameters of a function, of a method with its object, and of a lambda.
template <typename R, bool is_noexcept, typename... P>
TypeList<P...> parameters_of(R (*)(P...) noexcept(is_noexcept));
template <typename R, typename C, bool is_noexcept, typename... P>
TypeList<C&, P...> parameters_of(R (C::*)(P...) noexcept(is_noexcept));
template <typename R, typename C, bool is_noexcept, typename... P>
TypeList<C&, P...> parameters_of(R (C::*)(P...) const noexcept(is_noexcept));
template <typename First, typename... P>
TypeList<P...> without_first(TypeList<First, P...>);
template <typename Function>
requires requires {
  &Function::operator();
}
auto parameters_of(Function) -> decltype(without_first(parameters_of(&Function::operator())));

// Calls run(), and converts its result with the lock held.
template <bool is_unlocked, typename Run>
Reference converted(const Run& run) {
  const auto call = [&]() -> decltype(auto) {
    if constexpr (is_unlocked) {
      return without_gil(run);
    } else {
      return run();
    }
  };
  if constexpr (std::is_void_v<decltype(run())>) {
    call();
    return Reference::borrow(Py_None);
  } else {
    return to_python(call());
  }
}

template <typename Parameter>
inline constexpr bool is_named =
    !std::is_same_v<Parameter, Rest> && !std::is_same_v<std::decay_t<Parameter>, Others>;
template <typename Parameter>
using Stored = std::conditional_t<std::is_same_v<std::decay_t<Parameter>, std::string_view>,
                                  std::string, std::decay_t<Parameter>>;
template <typename... P>
constexpr std::size_t named_count(TypeList<P...>) {
  return (std::size_t{is_named<P>} + ... + 0);
}

// Reads the arguments of a call for parameters of these types.
template <typename... P>
std::tuple<Stored<P>...> arguments_for(TypeList<P...>, const Signature* signature,
                                       const Passed& passed) {
  if constexpr (sizeof...(P) == 0) {
    return {};
  } else {
    std::array<PyObject*, (std::size_t{is_named<P>} + ... + 0)> read = {};
    Others others;
    read_arguments(*signature, passed, read.data(), others);
    std::size_t i = 0;
    const auto next = [&]<typename Parameter>(std::type_identity<Parameter>) -> Stored<Parameter> {
      if constexpr (std::is_same_v<Parameter, Rest>) {
        return passed.positional.subspan(
            std::min(signature->by_position, passed.positional.size()));
      } else if constexpr (!is_named<Parameter>) {
        return std::move(others);
      } else {
        PyObject* const object = read[i];
        return argument<Stored<Parameter>>(object, signature->names[i++]);
      }
    };
    return std::tuple<Stored<P>...>{next(std::type_identity<P>())...};
  }
}

// An Entry is the C function that Python calls for a function. The first parameter of a method is
// the object: a Class& of a Receiver, or the PyObject* itself.
template <auto function, bool has_self>
struct Entry {
  static inline const Signature* signature = nullptr;

  static constexpr auto all() {
    return decltype(parameters_of(std::decay_t<decltype(function)>(function)))();
  }
  static constexpr auto parameters() {
    if constexpr (has_self) {
      return decltype(without_first(all()))();
    } else {
      return all();
    }
  }
  template <bool is_unlocked, typename... Self>
  static Reference apply(const Passed& passed, Self&&... self) {
    auto given = arguments_for(parameters(), signature, passed);
    return converted<is_unlocked>([&]() -> decltype(auto) {
      return std::apply(
          [&](auto&... each) -> decltype(auto) {
            return std::invoke(function, self..., std::move(each)...);
          },
          given);
    });
  }
  template <typename First, typename... P>
  static Reference apply_to(TypeList<First, P...>, PyObject* self, const Passed& passed) {
    using Finder = Receiver<std::remove_cvref_t<First>>;
    const auto object = Finder::of(self);
    return apply<Finder::kIsUnlocked>(passed, *object);
  }
  static Reference run(PyObject* self, const Passed& passed) {
    if constexpr (has_self) {
      return apply_to(all(), self, passed);
    } else {
      return apply<false>(passed);
    }
  }

  static PyObject* call(PyObject* self, PyObject* const* values, Py_ssize_t count,
                        PyObject* names) noexcept {
    return guarded([&] {
      const auto positional = static_cast<std::size_t>(count);
      const auto named = static_cast<std::size_t>(names == nullptr ? 0 : PyTuple_Size(names));
      return run(self, {{values, positional}, {values + positional, named}, names}).release();
    });
  }
  static PyObject* call_alone(PyObject* self, PyObject*) noexcept {
    return guarded([&] { return run(self, {}).release(); });
  }
  static PyObject* get(PyObject* self, void*) noexcept { return call_alone(self, nullptr); }
  static PyObject* call_unary(PyObject* self) noexcept { return call_alone(self, nullptr); }
  static PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject* keywords) noexcept {
    return guarded([&] {
      const PassedTuple all(arguments, keywords);
      auto given = arguments_for(parameters(), signature, all.passed);
      const auto made = [&](auto&... each) {
        using Value = std::decay_t<decltype(function(std::move(each)...))>;
        return make_object<Value>(type, function(std::move(each)...));
      };
      return std::apply(made, given).release();
    });
  }
};

// ---- Tables ----

// A Method is an entry of a type or of the module, or the constructor of a type.
struct Method {
  const char* name = nullptr;
  void* called = nullptr;
  int flags = 0;
  const Signature** signature = nullptr;  // the entry's pointer to its signature; null: it reads
                                          // none
  std::size_t count = 0;                  // number of its parameters
};
struct Property {
  const char* name;
  getter get;
};

template <typename Entry>
Method method_of(const char* name) {
  constexpr bool is_alone = std::is_same_v<decltype(Entry::parameters()), TypeList<>>;
  return {
      name,
      is_alone ? reinterpret_cast<void*>(Entry::call_alone) : reinterpret_cast<void*>(Entry::call),
      is_alone ? METH_NOARGS : METH_FASTCALL | METH_KEYWORDS, &Entry::signature,
      named_count(Entry::parameters())};
}
// Return the entry of a method, of a function of the module, and of an attribute.
template <auto f>
Method bind(const char* name) {
  return method_of<Entry<f, true>>(name);
}
template <auto f>
Method bind_function(const char* name) {
  return method_of<Entry<f, false>>(name);
}
template <auto f>
Property property(const char* name) {
  return {name, Entry<f, true>::get};
}
// Returns the constructor of a type, which holds the value that the function makes.
template <auto f>
Method constructor() {
  using Made = Entry<f, false>;
  return {nullptr, reinterpret_cast<void*>(Made::make), 0, &Made::signature,
          named_count(Made::parameters())};
}
template <auto f>
PyType_Slot slot(int id) {
  return {id, reinterpret_cast<void*>(Entry<f, true>::call_unary)};
}

// A Type is the description from which add_type() makes a type.
struct Type {
  const char* name;  // with the module's; the module gets the part after the last dot
  std::vector<Method> methods = {};
  std::vector<Property> properties = {};
  Method maker = {};
  std::vector<PyType_Slot> slots = {};
  unsigned int flags = 0;
  PyMemberDef* members = nullptr;
};

// Make a type and add it to the module, and add functions. The tables live as long as the process.
PyTypeObject* add_type(PyObject* module, Type type, std::size_t bytes);
void add_functions(PyObject* module, std::vector<Method> functions);

// Values that may be part of reference cycles: visit(f) calls f(object) for each object that they
// own, which may be null.
template <typename Value>
concept Collected = requires(const Value& value, void (*visit)(PyObject*)) {
  value.visit(visit);
};

// Value::end(), if there is one, is called before a value is destroyed.
template <typename Value>
void dealloc_object(PyObject* self) {
  if constexpr (Collected<Value>) PyObject_GC_UnTrack(self);
  if constexpr (requires(Value value) { value.end(); }) value_of<Value>(self).end();
  std::destroy_at(&value_of<Value>(self));
  PyTypeObject* const type = Py_TYPE(self);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}
template <typename Value>
int traverse_object(PyObject* self, visitproc visit, void* arg) {
  int stop = 0;
  const auto each = [&](PyObject* object) {
    if (stop == 0 && object != nullptr) stop = visit(object, arg);
  };
  each(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  value_of<Value>(self).visit(each);
  return stop;
}
template <typename Value>
int clear_object(PyObject* self) {
  if constexpr (requires(Value value) { value.clear(); }) {
    value_of<Value>(self).clear();
  } else {
    const Value last = std::exchange(value_of<Value>(self), Value());
  }
  return 0;
}

template <typename Value>
void add_type(PyObject* module, Type type, std::size_t bytes = sizeof(Object<Value>)) {
  type.slots.push_back({Py_tp_dealloc, reinterpret_cast<void*>(dealloc_object<Value>)});
  if constexpr (Collected<Value>) {
    type.flags |= Py_TPFLAGS_HAVE_GC;
    type.slots.push_back({Py_tp_traverse, reinterpret_cast<void*>(traverse_object<Value>)});
    type.slots.push_back({Py_tp_clear, reinterpret_cast<void*>(clear_object<Value>)});
  }
  type_of<Value> = add_type(module, std::move(type), bytes);
}

}  // namespace cgtree::python
