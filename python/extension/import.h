// import_object(): makes tensors of the arrays of other libraries without copying data.
#pragma once

#include "base/error.h"
#include "interop/exchange/foreign_array.h"
#include "interop/tensor/tensor.h"
#include "python/extension/python.h"

namespace cgtree::python {

// Returns a tensor of cgtree unchanged, and imports others by the first protocol that the object
// has: the exchange API of its type, a CUDA array interface with a stream, DLPack, a CUDA array
// interface, NumPy's interface. The tensor keeps the object. Sets *needs_wait, if given, if the
// producer can learn only from a wait of the host that our work is done. Requires: the GIL.
//
// Throws BoundaryError, TypeError for an object without a protocol, and errors of the object.
Tensor import_object(PyObject* object, const ImportOptions& options, bool* needs_wait = nullptr);

// Throws BoundaryError if the object has the negative or the conjugate bit, because its memory then
// does not hold its values. Only PyTorch's tensors have them.
void expect_resolved_values(PyObject* object);
// Throws BoundaryError for a dtype other than the wanted one.
void expect_dtype(const ImportOptions& options, const Tensor& tensor);

// Imports a dict or an object with the attribute. The tensor keeps `owner`, which may be null.
// (array_interface.cc)
Tensor import_cuda_array(PyObject* object, PyObject* owner, const ImportOptions& options);
// The same for NumPy's interface: memory of the host.
Tensor import_host_array(PyObject* object, PyObject* owner, const ImportOptions& options);
// Returns whether a CUDA array interface names the stream that works on the array. Throws
// BoundaryError for anything but a dict.
bool names_a_stream(PyObject* interface);
// Imports an object with __dlpack__, or a capsule (dlpack.cc).
Tensor import_dlpack(PyObject* object, const ImportOptions& options);

// Calls run() and then inputs.settle(), which waits for work on tensors of other libraries, also if
// run() throws. An exception of run() then hides one of settle().
template <typename Inputs, typename Run>
void and_settle(Inputs& inputs, const Run& run) {
  try {
    run();
  } catch (...) {
    try {
      inputs.settle();
    } catch (const Error&) {
    }
    throw;
  }
  inputs.settle();
}

}  // namespace cgtree::python
