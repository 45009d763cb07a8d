// The Python type cgtree.Tensor, a handle of a C++ tensor.
#pragma once

#include <utility>
#include <vector>

#include "interop/tensor/tensor.h"
#include "python/extension/object.h"

namespace cgtree::python {

inline bool is_tensor(PyObject* object) noexcept {
  return Py_TYPE(object) == type_of<Tensor>;
}
// Requires: is_tensor().
inline Tensor& tensor_of(PyObject* object) noexcept {
  return value_of<Tensor>(object);
}

Reference make_tensor(Tensor tensor);

template <>
struct Caster<Tensor> {
  static const Tensor& from(PyObject* object, const char* what) {
    return expect_object<Tensor>(object, what);
  }
  static Reference to(Tensor tensor) { return make_tensor(std::move(tensor)); }
};

// ---- Entries of the type, by file ----

std::vector<Method> tensor_view_methods();  // tensor_views.cc
PyObject* tensor_getitem(PyObject* self, PyObject* key);
std::vector<Method> copy_methods();             // copies.cc
std::vector<Method> dlpack_methods();           // dlpack.cc
std::vector<Method> array_interface_methods();  // array_interface.cc
std::vector<Property> array_interface_properties();

}  // namespace cgtree::python
