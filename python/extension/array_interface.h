// The dicts of the array interfaces, of CUDA and of NumPy: read, and made of tensors.
#pragma once

#include "interop/exchange/cuda_array_interface.h"
#include "python/extension/errors.h"

namespace cgtree::python {

// Reads the entries of the protocol; other keys are ignored. Requires: `dict` is a dict. Throws
// BoundaryError that names the entry, its value and the expected value, for entries that are
// missing, of the wrong type or negative, and for masks; and exceptions that a value raises.
CudaArrayInterface read_interface(PyObject* dict);

// Returns the dict of a tensor whose description is `array`.
Reference interface_dict(const Tensor& tensor, const CudaArrayInterface& array, bool has_stream);

}  // namespace cgtree::python
