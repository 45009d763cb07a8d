// The exchange API of DLPack between types of Python.
#pragma once

#include "interop/exchange/dlpack.h"
#include "interop/exchange/dlpack_exchange.h"
#include "python/extension/errors.h"
#include "python/extension/import.h"

namespace cgtree::python {

// Returns the __dlpack_c_exchange_api__ of the type of tensors.
Reference exchange_capsule();

// Returns the table for converting objects of this type, or null if the type has none. The results
// for the last types are cached.
const dlpack::Exchange* exchange_of(PyTypeObject* type);

// Imports an object of the type that the table belongs to. Throws BoundaryError and PythonError.
Tensor import_exchange(const dlpack::Exchange& exchange, PyObject* object,
                       const ImportOptions& options);

// Makes an object of the type that the table belongs to. It has the memory of the tensor, which it
// keeps alive, and nothing waits. Throws BoundaryError, StaleTensor and PythonError.
Reference export_exchange(const dlpack::Exchange& exchange, const Tensor& tensor);

}  // namespace cgtree::python
