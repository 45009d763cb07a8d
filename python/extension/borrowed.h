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

// It is used for one argument of many calls, which differ in the address and in the stream alone.
// Requires: the GIL.
class BorrowedTensor {
 public:
  // Makes `tensor`, which is always the same, one of the memory of `view`, which lies on the device
  // of `stream`, on which the library works, and holds the values themselves. Throws BoundaryError
  // for what cannot be a tensor of cgtree, as from_dlpack().
  void take(const dlpack::TensorView& view, StreamRef stream, Tensor& tensor);
  // Ends a call. If something still holds the memory, it holds `object` from now on, and the tensor
  // is gone: then false.
  bool give_back(PyObject* object, Tensor& tensor);

 private:
  void move_to(std::byte* first, Tensor& tensor);

  BorrowedStorage* storage_ = nullptr;  // of the tensor
  BorrowedStorage* other_ = nullptr;    // where the tensor was before, or null
  Tensor other_tensor_;                 // of it
  StreamRef stream_;
};

}  // namespace cgtree::python
