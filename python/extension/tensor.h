// The Python type cgtree.Tensor, a handle of a C++ tensor; and copies of tensors.
#pragma once

#include "interop/tensor/tensor.h"
#include "python/extension/errors.h"

namespace cgtree::python {

struct TensorObject {
  PyObject ob_base;
  PyObject* weak_references;
  Tensor tensor;
};

// The type is made by add_tensor_type() and lives as long as the process.
extern PyTypeObject* tensor_type;

inline bool is_tensor(PyObject* object) noexcept {
  return Py_TYPE(object) == tensor_type;
}
// Requires: is_tensor().
inline Tensor& tensor_of(PyObject* object) noexcept {
  return reinterpret_cast<TensorObject*>(object)->tensor;
}
// Throws TypeError, which names `what`, for another type.
Tensor& expect_tensor(PyObject* object, const char* what);

Reference make_tensor(Tensor tensor);

// ---- Copies between tensors of any layout, and from and to the host (copies.cc) ----

// Copies between any layouts; `source` is what import_object() takes. Throws InvalidArgument for
// another shape or dtype and for a read-only destination, StaleTensor, CaptureError and
// DeviceError.
void copy_from_object(const Tensor& destination, PyObject* source);

// Copies into row-major memory and waits for the copy. Requires: the GIL is released, and there is
// room for tensor.bytes(). Throws StaleTensor, CaptureError and DeviceError.
void copy_to_host_memory(const Tensor& tensor, void* destination);

// Entries of the type, by file.
extern PyMethodDef tensor_view_methods[];  // tensor_views.cc, ends with null
PyObject* tensor_getitem(PyObject* self, PyObject* key);
extern PyMethodDef tensor_protocol_methods[];  // tensor_protocols.cc, ends with null
Reference cuda_array_interface_property(PyObject* self);
Reference array_interface_property(PyObject* self);

}  // namespace cgtree::python
