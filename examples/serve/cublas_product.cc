// cublasSgemm in full float32, with a workspace of its own so that it never allocates.
#include "examples/serve/cublas_product.h"

#include <fmt/format.h>

#include "base/error.h"
#include "examples/serve/cuda_blas_library.h"
#include "interop/empty.h"

namespace cgtree::serve {
namespace {

class CublasProduct final : public MatrixProduct {
 public:
  explicit CublasProduct(Device device)
      : workspace_(
            empty({static_cast<std::int64_t>(kCublasWorkspaceBytes)}, DType::kUInt8, device)) {
    expect(cublas_.create(&handle_), "cublasCreate");
    expect(cublas_.set_math_mode(handle_, CUBLAS_DEFAULT_MATH), "cublasSetMathMode");
  }
  ~CublasProduct() override { cublas_.destroy(handle_); }
  CublasProduct(const CublasProduct&) = delete;
  CublasProduct& operator=(const CublasProduct&) = delete;

  void multiply(StreamRef stream, const Tensor& x, const Tensor& w, const Tensor& y,
                bool accumulate) override {
    use(stream);
    const float one = 1.0f;
    const float beta = accumulate ? 1.0f : 0.0f;
    const int rows = static_cast<int>(x.dim(0));
    const int depth = static_cast<int>(x.dim(1));
    const int columns = static_cast<int>(w.dim(1));
    // cuBLAS counts by columns: row-major y = x w is column-major y' = w' x'.
    expect(cublas_.sgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, columns, rows, depth, &one,
                         w.data<float>(), columns, x.data<float>(), depth, &beta, y.data<float>(),
                         columns),
           "cublasSgemm");
  }

 private:
  static void expect(cublasStatus_t status, const char* verb) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    const auto code = static_cast<int>(status);
    throw DeviceError(static_cast<int>(Code::kUnknown),
                      fmt::format("{} answered cuBLAS status {}", verb, code));
  }

  void use(StreamRef stream) {
    if (stream == stream_) return;
    expect(cublas_.set_stream(handle_, static_cast<cudaStream_t>(stream.native())),
           "cublasSetStream");
    // cublasSetStream went back to the default workspace.
    expect(cublas_.set_workspace(handle_, workspace_.data(), kCublasWorkspaceBytes),
           "cublasSetWorkspace");
    stream_ = stream;
  }

  CublasLibrary cublas_;
  Tensor workspace_;
  cublasHandle_t handle_ = nullptr;
  StreamRef stream_;  // what the handle is set to
};

}  // namespace

std::unique_ptr<MatrixProduct> make_cublas_product(Device device) {
  return std::make_unique<CublasProduct>(device);
}

}  // namespace cgtree::serve
