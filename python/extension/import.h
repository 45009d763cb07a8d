// import_object(): whatever array of another library, as a tensor; no data moves.
#pragma once

#include <exception>
#include <optional>

#include "base/error.h"
#include "interop/exchange/stream_synchronization.h"
#include "interop/tensor/tensor.h"
#include "python/extension/python.h"

namespace cgtree::python {

struct ObjectImport {
  StreamRef consumer = {};  // as in ImportOptions
  std::optional<SyncPolicy> sync = {};
  std::optional<DType> dtype = {};
  // The host is asked for as a device: memory that a CUDA array interface names lies there.
  std::optional<Device> device = {};
};

// Our own tensors as they are; else the first that the object has of: the exchange API of its type,
// a CUDA array interface with a stream, DLPack, a CUDA array interface, NumPy's interface. The
// tensor keeps what it came from. `needs_wait`, if given, is set where nothing but a wait of the
// host tells the producer that our work is done. Requires the GIL.
//
// Throws BoundaryError; TypeError for an object that has none of them; what the object raises.
Tensor import_object(PyObject* object, const ObjectImport& options, bool* needs_wait = nullptr);

// A dict, or an object with the attribute. `owner` may be null: then nothing is kept.
Tensor import_cuda_array(PyObject* object, PyObject* owner, const ObjectImport& options);
Tensor import_dlpack(PyObject* object, const ObjectImport& options);
// Memory of the host. A dict, or an object with the attribute.
Tensor import_host_array(PyObject* object, PyObject* owner, const ObjectImport& options);

// Calls run() and then inputs.settle(), which waits for work on tensors of other libraries, also if
// run() throws. Then what run() throws comes out, and not that settle() fails too.
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
