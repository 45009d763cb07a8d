// Chooses the product of a device, and holds the host's.
#include "examples/serve/matmul.h"

#include "examples/serve/cublas_product.h"
#include "examples/serve/host_kernels.h"
#include "interop/kernel.h"

namespace cgtree::serve {
namespace {

class HostProduct final : public MatrixProduct {
 public:
  void multiply(StreamRef stream, const Tensor& x, const Tensor& w, const Tensor& y,
                bool accumulate) override {
    launch(stream, make_kernel<multiply_on_host>("multiply"), {},
           ProductArguments{x.data<float>(), w.data<float>(), y.data<float>(), x.dim(0), w.dim(0),
                            w.dim(1), accumulate});
  }
};

}  // namespace

std::unique_ptr<MatrixProduct> make_matrix_product(Device device) {
  if (device.type == DeviceType::kCuda) return make_cublas_product(device);
  return std::make_unique<HostProduct>();
}

std::size_t workspace_bytes(Device device) {
  return device.type == DeviceType::kCuda ? kCublasWorkspaceBytes : 0;
}

}  // namespace cgtree::serve
