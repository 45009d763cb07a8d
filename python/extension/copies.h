// Copies between tensors of any layout, and from and to the host.
#pragma once

#include "interop/tensor/tensor.h"
#include "python/extension/python.h"

namespace cgtree::python {

// Copies between any layouts; `source` is what import_object() takes. Throws InvalidArgument for
// another shape or dtype and for a read-only destination, StaleTensor, CaptureError and
// DeviceError.
void copy_from_object(const Tensor& destination, PyObject* source);

// Copies into row-major memory and waits for the copy. Requires: the GIL is released, and there is
// room for tensor.bytes(). Throws StaleTensor, CaptureError and DeviceError.
void copy_to_host_memory(const Tensor& tensor, void* destination);

}  // namespace cgtree::python
