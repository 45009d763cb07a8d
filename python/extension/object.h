// Python objects that hold a value of C++, and the functions of their types that do not depend on
// what it is.
#pragma once

#include <memory>
#include <new>
#include <utility>

#include "python/extension/errors.h"

namespace cgtree::python {

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

template <typename Value>
PyTypeObject* add_object_type(PyObject* module, const char* name, const char* full_name,
                              unsigned int flags, newfunc make, PyMethodDef* methods,
                              const char* doc) {
  PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                         {Py_tp_methods, methods},
                         {Py_tp_doc, const_cast<char*>(doc)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_object<Value>)},
                         {0, nullptr}};
  PyType_Spec spec = {full_name, sizeof(Object<Value>), 0, Py_TPFLAGS_DEFAULT | flags, slots};
  Reference type = checked(PyType_FromSpec(&spec));
  check_status(PyModule_AddObjectRef(module, name, type.get()));
  return reinterpret_cast<PyTypeObject*>(type.release());
}

// The same for values in which cycles may begin.
template <typename Value>
PyTypeObject* add_collected_type(PyObject* module, const char* name, const char* full_name,
                                 newfunc make, PyMethodDef* methods, const char* doc) {
  PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                         {Py_tp_methods, methods},
                         {Py_tp_doc, const_cast<char*>(doc)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_collected<Value>)},
                         {Py_tp_traverse, reinterpret_cast<void*>(traverse_object<Value>)},
                         {Py_tp_clear, reinterpret_cast<void*>(clear_object<Value>)},
                         {0, nullptr}};
  PyType_Spec spec = {full_name, sizeof(Object<Value>), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                      slots};
  Reference type = checked(PyType_FromSpec(&spec));
  check_status(PyModule_AddObjectRef(module, name, type.get()));
  return reinterpret_cast<PyTypeObject*>(type.release());
}

}  // namespace cgtree::python
