// What other libraries ask a tensor for.
#pragma once

#include "python/extension/python.h"

namespace cgtree::python {

PyObject* cuda_array_interface_property(PyObject* self, void*);
PyObject* array_interface_property(PyObject* self, void*);

extern PyMethodDef tensor_protocol_methods[];  // ends with null

}  // namespace cgtree::python
