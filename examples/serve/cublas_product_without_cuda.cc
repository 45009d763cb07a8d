// Stands in for the cuBLAS product where nothing was built for a GPU.
#include "base/error.h"
#include "examples/serve/cublas_product.h"

namespace cgtree::serve {

std::unique_ptr<MatrixProduct> make_cublas_product(Device) {
  throw InvalidArgument("built without CUDA: use --device=host");
}

}  // namespace cgtree::serve
