// The Python type cgtree.Tensor, a handle of a C++ tensor; and copies of tensors.
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

// ---- Copies between tensors of any layout, and from and to the host (copies.cc) ----

// Copies between any layouts; `source` is what import_object() takes. Throws InvalidArgument for
// another shape or dtype and for a read-only destination, StaleTensor, CaptureError and
// DeviceError.
void copy_from_object(const Tensor& destination, PyObject* source);

// Copies into row-major memory and waits for the copy. Requires: the GIL is released, and there is
// room for tensor.bytes(). Throws StaleTensor, CaptureError and DeviceError.
void copy_to_host_memory(const Tensor& tensor, void* destination);

// ---- Entries of the type, by file ----

std::vector<Method> tensor_view_methods();  // tensor_views.cc
PyObject* tensor_getitem(PyObject* self, PyObject* key);
std::vector<Method> tensor_protocol_methods();  // tensor_protocols.cc
std::vector<Property> tensor_protocol_properties();

}  // namespace cgtree::python
