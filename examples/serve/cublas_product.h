// The matrix product on a GPU.
#pragma once

#include <cstddef>
#include <memory>

#include "examples/serve/matmul.h"

namespace cgtree::serve {

// Source: the size cuBLAS recommends for Hopper (cuBLAS 13.0, cublasSetWorkspace).
inline constexpr std::size_t kCublasWorkspaceBytes = std::size_t{32} << 20;

// Throws InvalidArgument if built without CUDA or if the cuBLAS library cannot be loaded.
std::unique_ptr<MatrixProduct> make_cublas_product(Device device);

}  // namespace cgtree::serve
