// Products: matrix products, by cuBLASLt on a GPU, but those of one row by a kernel of ours; and by
// plain loops on the host device.
#pragma once

#include <memory>

#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree::serve {

// A Products keeps what cuBLASLt needs for each shape. The library is loaded at run time, so that a
// program built with CUDA starts where there is none. Thread safety: any thread.
class Products {
 public:
  // Throws InvalidArgument if the library is not found; DeviceError.
  explicit Products(Device device);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Enqueues y {rows, columns} = x {rows, depth} w {columns, depth}^T with float32 sums. x and w
  // have one type, float32 or bfloat16; y has the same or is float32. The algorithm depends on
  // shapes and types alone. Its workspace is a Workspace: inside a step, memory of the context's
  // pool. Requires: depth is a multiple of 8.
  void multiply(StreamRef stream, const Tensor& x, const Tensor& w, const Tensor& y) const;

 private:
  struct Cublas;
  std::unique_ptr<Cublas> cublas_;  // null on the host device
};

}  // namespace cgtree::serve
