// MatrixProduct: y = x w or y += x w on one device; cuBLAS on a GPU, plain loops on the host.
#pragma once

#include <memory>

#include "interop/stream.h"
#include "interop/tensor.h"

namespace cgtree::serve {

// Used by one thread at a time.
class MatrixProduct {
 public:
  virtual ~MatrixProduct() = default;

  // x {rows, depth}, w {depth, columns}, y {rows, columns}: contiguous float32. Throws DeviceError.
  virtual void multiply(StreamRef stream, const Tensor& x, const Tensor& w, const Tensor& y,
                        bool accumulate) = 0;
};

// Throws InvalidArgument where cuBLAS is needed and cannot be loaded.
std::unique_ptr<MatrixProduct> make_matrix_product(Device device);

// Bytes of device memory that the product of `device` holds as its workspace.
std::size_t workspace_bytes(Device device);

}  // namespace cgtree::serve
