// The Python type cgtree.Tensor: a handle of a C++ tensor.
#pragma once

#include "interop/tensor/tensor.h"
#include "python/extension/errors.h"

namespace cgtree::python {

struct TensorObject {
  PyObject ob_base;
  PyObject* weak_references;
  Tensor tensor;
};

// Made by add_tensor_type(); lives as long as the process.
extern PyTypeObject* tensor_type;

void add_tensor_type(PyObject* module);

inline bool is_tensor(PyObject* object) noexcept {
  return Py_TYPE(object) == tensor_type;
}
// Requires is_tensor().
inline Tensor& tensor_of(PyObject* object) noexcept {
  return reinterpret_cast<TensorObject*>(object)->tensor;
}
// Throws TypeError that names `what` for another type.
Tensor& expect_tensor(PyObject* object, const char* what);

Reference make_tensor(Tensor tensor);

// Entries of the type; each file says what it has.
extern PyMethodDef tensor_view_methods[];  // tensor_views.cc, ends with null
PyObject* tensor_getitem(PyObject* self, PyObject* key);

}  // namespace cgtree::python
