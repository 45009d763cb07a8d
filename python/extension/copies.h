// Copies between tensors of any layout, and from and to the host.
#pragma once

#include "interop/tensor/tensor.h"
#include "python/extension/python.h"

namespace cgtree::python {

// Any layout on either side. `source` is whatever import_object() takes. Throws InvalidArgument for
// another shape or dtype and for a read-only destination; StaleTensor, CaptureError, DeviceError.
void copy_from_object(const Tensor& destination, PyObject* source);

// Row-major; waits, so call it without the GIL. Requires room for tensor.bytes(). Throws
// StaleTensor, CaptureError, DeviceError.
void copy_to_host_memory(const Tensor& tensor, void* destination);

}  // namespace cgtree::python
