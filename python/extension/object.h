// Python types whose objects hold a value of C++, and functions of C++ as entries of their tables.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/extension/errors.h"
#include "python/extension/values.h"

namespace cgtree::python {

// ---- Entries: an exception becomes Python's, and the result a Python object ----

inline PyObject* to_object(Reference made) noexcept {
  return made.release();
}
inline PyObject* to_object(std::string_view text) {
  return from_text(text).release();
}
inline PyObject* to_object(const void* address) {
  return checked(PyLong_FromVoidPtr(const_cast<void*>(address))).release();
}
template <typename Number>
requires std::is_integral_v<Number> PyObject* to_object(Number number) {
  if constexpr (std::is_same_v<Number, bool>) return PyBool_FromLong(number ? 1 : 0);
  if constexpr (std::is_signed_v<Number>) return checked(PyLong_FromLongLong(number)).release();
  return checked(PyLong_FromUnsignedLongLong(number)).release();
}

// An Entry is what Python calls of a function that takes the object, or the module, and its
// arguments.
template <auto function>
struct Entry;
template <typename Result, typename... Given, Result (*function)(PyObject*, Given...)>
struct Entry<function> {
  static constexpr int kFlags = sizeof...(Given) == 0   ? METH_NOARGS
                                : sizeof...(Given) == 1 ? METH_O
                                                        : METH_VARARGS | METH_KEYWORDS;

  static PyObject* call(PyObject* self, Given... given) noexcept {
    return guarded([&]() -> PyObject* {
      if constexpr (std::is_void_v<Result>) {
        function(self, given...);
        Py_RETURN_NONE;
      } else {
        return to_object(function(self, given...));
      }
    });
  }
  static PyObject* call_alone(PyObject* self, void*) noexcept { return call(self, Given()...); }
};

// Returns the entry of a method or a function of the module. `flags`: by default METH_NOARGS,
// METH_O, or both kinds of arguments, by the number of those that the function takes.
template <auto function>
PyMethodDef method(const char* name, const char* doc, int flags = Entry<function>::kFlags) {
  void* called = nullptr;
  if constexpr (Entry<function>::kFlags == METH_NOARGS) {
    called = reinterpret_cast<void*>(Entry<function>::call_alone);
  } else {
    called = reinterpret_cast<void*>(Entry<function>::call);
  }
  return {name, reinterpret_cast<PyCFunction>(called), flags, doc};
}
template <auto function>
PyGetSetDef property(const char* name, const char* doc) {
  return {name, Entry<function>::call_alone, nullptr, doc, nullptr};
}

// ---- Types ----

template <typename Value>
struct Object {
  PyObject ob_base;
  Value value;
};

// Requires: `self` was made by make_object<Value>().
template <typename Value>
Value& value_of(PyObject* self) {
  return reinterpret_cast<Object<Value>*>(self)->value;
}

template <typename Value, typename... Arguments>
Reference make_object(PyTypeObject* type, Arguments&&... arguments) {
  const auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  Reference self = checked(allocate(type, 0));
  new (&value_of<Value>(self.get())) Value(std::forward<Arguments>(arguments)...);
  return self;
}

template <typename Value>
void dealloc_object(PyObject* self) {
  std::destroy_at(&value_of<Value>(self));
  PyTypeObject* const type = Py_TYPE(self);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

// The next three are for values in which cycles may begin: Value::visit(visit) calls visit(object)
// for each object that it owns, and returns what is not 0 at once.
template <typename Value>
void dealloc_collected(PyObject* self) {
  PyObject_GC_UnTrack(self);
  dealloc_object<Value>(self);
}
template <typename Value>
int traverse_object(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  return value_of<Value>(self).visit([&](PyObject* object) -> int {
    Py_VISIT(object);
    return 0;
  });
}
template <typename Value>
int clear_object(PyObject* self) {
  const Value last = std::exchange(value_of<Value>(self), Value());
  return 0;
}

// A Type is what add_type() makes a type of. The tables live as long as the process.
struct Type {
  const char* name;  // with the module's; the module gets what is behind the last dot
  const char* doc = nullptr;
  PyMethodDef* methods = nullptr;
  PyGetSetDef* properties = nullptr;
  newfunc make = nullptr;
  std::vector<PyType_Slot> others = {};
  unsigned int flags = 0;
  destructor dealloc = nullptr;  // null: destroys the value
};

// Makes a type, which lives as long as the process, and adds it to the module. Throws PythonError.
PyTypeObject* add_type(PyObject* module, const Type& type, int bytes);

template <typename Value>
PyTypeObject* add_object_type(PyObject* module, Type type) {
  if (type.dealloc == nullptr) type.dealloc = dealloc_object<Value>;
  return add_type(module, type, sizeof(Object<Value>));
}

// The same for values in which cycles may begin.
template <typename Value>
PyTypeObject* add_collected_type(PyObject* module, Type type) {
  type.flags |= Py_TPFLAGS_HAVE_GC;
  type.dealloc = dealloc_collected<Value>;
  type.others.push_back({Py_tp_traverse, reinterpret_cast<void*>(traverse_object<Value>)});
  type.others.push_back({Py_tp_clear, reinterpret_cast<void*>(clear_object<Value>)});
  return add_type(module, type, sizeof(Object<Value>));
}

}  // namespace cgtree::python
