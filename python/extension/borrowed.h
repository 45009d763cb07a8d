// A BorrowedTensor is a tensor of another library for the length of a call that the library's own
// object outlives: an import without an owner, and without the synchronization of streams.
#pragma once

#include <cstddef>

#include "interop/device/stream.h"
#include "interop/exchange/dlpack.h"
#include "interop/tensor/tensor.h"
#include "python/extension/python.h"

namespace cgtree::python {

class BorrowedStorage;

// It serves one argument of many calls, which differ only in the address and in the stream.
// Requires: the GIL.
class BorrowedTensor {
 public:
  // Points `tensor`, which is the same object in each call, at the memory of `view`. The memory
  // lies on the device of `stream`, on which the library works, and holds the values themselves.
  // Throws BoundaryError, as from_dlpack(), if the view cannot be a tensor of cgtree.
  void take(const dlpack::TensorView& view, StreamRef stream, Tensor& tensor);
  // Ends a call. If something else still holds the memory, it keeps `object` from now on, the
  // tensor is reset, and the result is false.
  bool give_back(PyObject* object, Tensor& tensor);

 private:
  void move_to(std::byte* first, Tensor& tensor);

  BorrowedStorage* storage_ = nullptr;  // the storage of the tensor
  BorrowedStorage* other_ = nullptr;    // the tensor's storage at its other place, or null
  Tensor other_tensor_;                 // the tensor of `other_`
  StreamRef stream_;
};

}  // namespace cgtree::python
