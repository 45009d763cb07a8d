// cuBLASLt: matrix products with a workspace allocated by the step.
#include <cublasLt.h>

#include <cstdint>
#include <memory>

#include "base/error.h"
#include "benchmarks/libraries/library_steps.h"
#include "benchmarks/libraries/shared_library.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"

namespace cgtree::benchmarks {
namespace {

constexpr std::size_t kWorkspaceBytes = 32 << 20;

void expect_success(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError(status, std::string("cuBLASLt cannot ") + what);
  }
}

struct CublasLt {
  CublasLt() { expect_success(create(&handle), "create"); }

  SharedLibrary library{"libcublasLt.so.13", "libcublasLt.so.12"};
  decltype(&cublasLtCreate) create = library.find("cublasLtCreate");
  decltype(&cublasLtMatmul) matmul = library.find("cublasLtMatmul");
  decltype(&cublasLtMatmulDescCreate) make_description = library.find("cublasLtMatmulDescCreate");
  decltype(&cublasLtMatmulDescSetAttribute) set_attribute =
      library.find("cublasLtMatmulDescSetAttribute");
  decltype(&cublasLtMatrixLayoutCreate) make_layout = library.find("cublasLtMatrixLayoutCreate");
  decltype(&cublasLtMatmulPreferenceCreate) make_preference =
      library.find("cublasLtMatmulPreferenceCreate");
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference =
      library.find("cublasLtMatmulPreferenceSetAttribute");
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithms =
      library.find("cublasLtMatmulAlgoGetHeuristic");
  cublasLtHandle_t handle = nullptr;
};

// y {rows, columns} = x {rows, depth} w {columns, depth}^T. Lives as long as the program.
struct Product {
  Product(const CublasLt& library, DType type, int rows, int columns, int depth)
      : dtype(type), shape({rows, columns}) {
    const cudaDataType_t number = type == DType::kFloat32 ? CUDA_R_32F : CUDA_R_16BF;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulPreference_t preference = nullptr;
    expect_success(library.make_description(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                   "describe");
    expect_success(library.set_attribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                         sizeof(transposed)),
                   "transpose");
    expect_success(library.make_layout(&w, number, depth, columns, depth), "lay out");
    expect_success(library.make_layout(&x, number, depth, rows, depth), "lay out");
    expect_success(library.make_layout(&y, number, columns, rows, columns), "lay out");
    expect_success(library.make_preference(&preference), "prefer");
    expect_success(library.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                          &kWorkspaceBytes, sizeof(kWorkspaceBytes)),
                   "limit the workspace");
    int count = 0;
    expect_success(library.find_algorithms(library.handle, description, w, x, y, y, preference, 1,
                                           &chosen, &count),
                   "choose an algorithm");
    if (count == 0) throw DeviceError(CUBLAS_STATUS_NOT_SUPPORTED, "cuBLASLt has no algorithm");
  }

  DType dtype;
  Shape shape;  // of y
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
  cublasLtMatmulHeuristicResult_t chosen = {};
};

LibraryStep step(const std::shared_ptr<const CublasLt>& library, std::string name, DType dtype,
                 int rows, int columns, int depth) {
  const auto product = std::make_shared<const Product>(*library, dtype, rows, columns, depth);
  const auto run = [=](const Tensor& x) {
    const Workspace workspace(x.device(), product->chosen.workspaceSize);
    Tensor y = empty(product->shape, product->dtype);
    const float one = 1, zero = 0;
    expect_success(
        library->matmul(library->handle, product->description, &one, x.data(), product->w, x.data(),
                        product->x, &zero, y.data(), product->y, y.data(), product->y,
                        &product->chosen.algo, workspace.data(), workspace.bytes(),
                        static_cast<cudaStream_t>(current_stream().native())),
        "multiply");
    return y;
  };
  return {"cuBLASLt", std::move(name), run, "cuBLASLt's own memory, which lives as long as it"};
}

}  // namespace

std::vector<LibraryStep> cublaslt_steps() {
  const auto library = std::make_shared<const CublasLt>();
  return {step(library, "512 x 512 x 512 in bfloat16", DType::kBFloat16, 512, 512, 512),
          step(library, "16 x 1024 x 1024 in bfloat16", DType::kBFloat16, 16, 1024, 1024),
          step(library, "64 x 64 x 16384 in bfloat16", DType::kBFloat16, 64, 64, 16384),
          step(library, "512 x 512 x 512 in float32", DType::kFloat32, 512, 512, 512)};
}

}  // namespace cgtree::benchmarks
