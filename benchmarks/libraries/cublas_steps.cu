// cuBLAS: with its own workspace, with a given workspace, and with pointers in a table.
#include <cublas_v2.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "benchmarks/libraries/library_steps.h"
#include "benchmarks/libraries/shared_library.h"
#include "interop/device/kernel.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"

namespace cgtree::benchmarks {
namespace {

constexpr int kSide = 512;       // of square matrices
constexpr int kDepth = 1 << 14;  // of thin ones, whose sums cuBLAS splits
constexpr int kThin = 64;
constexpr int kMatrices = 4;                       // of a batch
constexpr std::size_t kWorkspaceBytes = 32 << 20;  // cuBLAS's advice for Hopper

void expect_success(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw DeviceError(status, std::string("cuBLAS cannot ") + what);
  }
}

// cublasGemmEx, which the header overloads.
using GemmEx = cublasStatus_t(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                              const void*, const void*, cudaDataType, int, const void*,
                              cudaDataType, int, const void*, void*, cudaDataType, int,
                              cublasComputeType_t, cublasGemmAlgo_t);

struct Cublas {
  Cublas() { expect_success(create(&handle), "create"); }

  void use(StreamRef stream) const {  // this resets the workspace
    expect_success(set_stream(handle, static_cast<cudaStream_t>(stream.native())), "set a stream");
  }

  SharedLibrary library{"libcublas.so.13", "libcublas.so.12"};
  decltype(&cublasCreate_v2) create = library.find("cublasCreate_v2");
  decltype(&cublasSetStream_v2) set_stream = library.find("cublasSetStream_v2");
  decltype(&cublasSetWorkspace_v2) set_workspace = library.find("cublasSetWorkspace_v2");
  decltype(&cublasSgemm_v2) sgemm = library.find("cublasSgemm_v2");
  decltype(&cublasSgemv_v2) sgemv = library.find("cublasSgemv_v2");
  GemmEx* gemm_ex = library.find("cublasGemmEx");
  decltype(&cublasSgemmBatched) sgemm_batched = library.find("cublasSgemmBatched");
  cublasHandle_t handle = nullptr;
};

using Shared = std::shared_ptr<const Cublas>;
constexpr float kOne = 1;
constexpr float kZero = 0;

Tensor multiply(const Cublas& cublas, const Tensor& x, int rows, int depth) {
  Tensor y = empty({rows, rows}, DType::kFloat32);
  const auto* const a = x.data<float>();
  expect_success(cublas.sgemm(cublas.handle, CUBLAS_OP_T, CUBLAS_OP_N, rows, rows, depth, &kOne, a,
                              depth, a, depth, &kZero, y.data<float>(), rows),
                 "multiply");
  return y;
}

Tensor multiply_bfloat16(const Cublas& cublas, const Tensor& x) {
  Tensor y = empty({kSide, kSide}, DType::kBFloat16);
  expect_success(
      cublas.gemm_ex(cublas.handle, CUBLAS_OP_T, CUBLAS_OP_N, kSide, kSide, kSide, &kOne, x.data(),
                     CUDA_R_16BF, kSide, x.data(), CUDA_R_16BF, kSide, &kZero, y.data(),
                     CUDA_R_16BF, kSide, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
      "multiply");
  return y;
}

Tensor multiply_vector(const Cublas& cublas, const Tensor& x) {
  Tensor y = empty({kSide}, DType::kFloat32);
  const auto* const a = x.data<float>();
  expect_success(cublas.sgemv(cublas.handle, CUBLAS_OP_T, kSide, kSide, &kOne, a, kSide, a, 1,
                              &kZero, y.data<float>(), 1),
                 "multiply");
  return y;
}

struct WriteTable {
  const float* from;
  float* to;
  const float** table;  // of the factors, and then of the products
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    table[i] = from + i * kThin * kThin;
    table[kMatrices + i] = from;
    table[2 * kMatrices + i] = to + i * kThin * kThin;
  }
};

// The matrices' addresses are in a table on the device, which no audit of parameters reads.
Tensor multiply_batch(const Cublas& cublas, const Tensor& x) {
  Tensor y = empty({kMatrices, kThin, kThin}, DType::kFloat32);
  const Tensor memory = empty({3 * kMatrices}, DType::kInt64);
  auto* const table = static_cast<const float**>(memory.data());
  parallel_for(current_stream(), kMatrices, WriteTable{x.data<float>(), y.data<float>(), table});
  expect_success(cublas.sgemm_batched(cublas.handle, CUBLAS_OP_T, CUBLAS_OP_N, kThin, kThin, kThin,
                                      &kOne, table, kThin, table + kMatrices, kThin, &kZero,
                                      const_cast<float**>(table) + 2 * kMatrices, kThin, kMatrices),
                 "multiply a batch");
  return y;
}

// A step with cuBLAS's own workspace.
template <typename Multiply>
std::function<Tensor(const Tensor&)> plainly(const Shared& cublas, Multiply multiply) {
  return [=](const Tensor& x) {
    cublas->use(current_stream());
    return multiply(*cublas, x);
  };
}

// A step that gives cuBLAS a workspace.
template <typename Multiply>
std::function<Tensor(const Tensor&)> with_workspace(const Shared& cublas, Multiply multiply) {
  return [=](const Tensor& x) {
    cublas->use(current_stream());
    const LibraryWorkspace workspace(
        x.device(), kWorkspaceBytes, [cublas](void* data, std::size_t bytes) {
          expect_success(cublas->set_workspace(cublas->handle, data, bytes), "set a workspace");
        });
    return multiply(*cublas, x);
  };
}

}  // namespace

std::vector<LibraryStep> cublas_steps() {
  const Shared cublas = std::make_shared<const Cublas>();
  const auto square = [](const Cublas& library, const Tensor& x) {
    return multiply(library, x, kSide, kSide);
  };
  const auto thin = [](const Cublas& library, const Tensor& x) {
    return multiply(library, x, kThin, kDepth);
  };
  const std::string own = "cuBLAS's own workspace or table, which lives as long as its handle";
  return {
      {"cuBLAS", "sgemm of 512", plainly(cublas, square), own},
      {"cuBLAS", "sgemm of 512, given workspace", with_workspace(cublas, square), own},
      {"cuBLAS", "sgemm of 64 x 16384, split", plainly(cublas, thin), own},
      {"cuBLAS", "sgemm of 64 x 16384, split, given workspace", with_workspace(cublas, thin), own},
      {"cuBLAS", "gemm of 512 in bfloat16", plainly(cublas, multiply_bfloat16), own},
      {"cuBLAS", "gemm of 512 in bfloat16, given workspace",
       with_workspace(cublas, multiply_bfloat16), own},
      {"cuBLAS", "sgemv of 512", plainly(cublas, multiply_vector), own},
      {"cuBLAS", "sgemm of a batch by a table", with_workspace(cublas, multiply_batch), own}};
}

}  // namespace cgtree::benchmarks
