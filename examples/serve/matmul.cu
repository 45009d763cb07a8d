// Matrix products: by cuBLASLt on a GPU, except those of one row, which have a kernel here; and by
// plain loops on the host device. Without CUDA a C++ compiler compiles this file too.

#include "base/error.h"
#include "examples/serve/kernels.h"
#include "examples/serve/numbers.h"
#include "interop/device/device_api.h"
#include "interop/device/kernel.h"
#include "interop/exchange/cuda_stream.h"
#include "interop/tensor/empty.h"

#ifdef __CUDACC__
#include <cublasLt.h>
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string>
#include <tuple>
#endif

namespace cgtree::serve {

namespace {

// y {rows, columns} = x {rows, depth} w {columns, depth}^T
struct Product {
  Numbers x;
  Numbers w;
  Numbers y;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
  std::int64_t has_float32;  // y; 0 or 1. Not a bool: bytes after it would differ between captures
};

// Rows are the inner loop, so that a row of weights is read from memory once.
void multiply_on_host(const LaunchDims&, Product a) {
  for (std::int64_t column = 0; column < a.columns; ++column) {
    const float* const w = a.w.on_host() + column * a.depth;
    for (std::int64_t row = 0; row < a.rows; ++row)
      a.y.on_host()[row * a.columns + column] =
          dot_on_host(a.x.on_host() + row * a.depth, w, a.depth);
  }
}

constexpr int kRowWarps = 4;

#ifdef __CUDACC__
// The product of one row reads each weight once and computes little, so that the memory's speed
// decides: a warp per column, with many loads in flight. Grid: {columns / kRowWarps}.
__global__ void __launch_bounds__(32 * kRowWarps) multiply_row_on_cuda(Product a) {
  constexpr int kAtOnce = 8;
  const std::int64_t column = blockIdx.x * kRowWarps + threadIdx.x / 32;
  const std::int64_t w = column * a.depth;
  float sum = 0;
  for (std::int64_t first = threadIdx.x % 32 * 8; first < a.depth; first += 256 * kAtOnce) {
    Packed weights[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const std::int64_t k = first + 256 * u;
      weights[u] = k < a.depth ? a.w.load_packed(w + k) : Packed{};
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const std::int64_t k = first + 256 * u;
      if (k >= a.depth) break;
      const Eight x = a.x.load(k), weight = widen(weights[u]);
      for (int i = 0; i < 8; ++i)
        sum += x.v[i] * weight.v[i];
    }
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 != 0) return;
  if (a.has_float32) {
    static_cast<float*>(a.y.first)[column] = sum;
  } else {
    a.y.set(column, sum);
  }
}

constexpr std::size_t kWorkspaceBytes = 32 << 20;  // cuBLAS's advice for Hopper

void expect_success(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(status, std::string("cuBLASLt cannot ") + what);
}

cudaDataType_t type_of(const Tensor& tensor) {
  return tensor.dtype() == DType::kFloat32 ? CUDA_R_32F : CUDA_R_16BF;
}

void* open_library() {
  for (const char* name : {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13"}) {
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw InvalidArgument("cannot load cuBLASLt (" + std::string(dlerror()) +
                        "): add the toolkit's library folder to LD_LIBRARY_PATH");
}

struct Library {
  // The address of a symbol, as a function of the required type.
  struct Symbol {
    void* address;
    template <typename F>
    operator F*() const {
      return reinterpret_cast<F*>(address);
    }
  };
  Symbol find(const char* name) const {
    if (void* const address = dlsym(library, name)) return {address};
    throw InvalidArgument(std::string("cuBLASLt has no ") + name);
  }

  void* library = open_library();
  decltype(&cublasLtCreate) create = find("cublasLtCreate");
  decltype(&cublasLtDestroy) destroy = find("cublasLtDestroy");
  decltype(&cublasLtMatmul) matmul = find("cublasLtMatmul");
  decltype(&cublasLtMatmulDescCreate) make_description = find("cublasLtMatmulDescCreate");
  decltype(&cublasLtMatmulDescSetAttribute) set_attribute = find("cublasLtMatmulDescSetAttribute");
  decltype(&cublasLtMatrixLayoutCreate) make_layout = find("cublasLtMatrixLayoutCreate");
  decltype(&cublasLtMatmulPreferenceCreate) make_preference =
      find("cublasLtMatmulPreferenceCreate");
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference =
      find("cublasLtMatmulPreferenceSetAttribute");
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithms =
      find("cublasLtMatmulAlgoGetHeuristic");
};

#endif
}  // namespace

#ifdef __CUDACC__
// cuBLAS counts columns first: y^T = w x^T, with y^T {columns, rows}. The objects made for a shape
// are small and live as long as the process.
struct Products::Cublas {
  struct Plan {
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulHeuristicResult_t chosen;
  };
  using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t, DType, DType>;

  Cublas() { expect_success(library.create(&handle), "create"); }
  ~Cublas() { static_cast<void>(library.destroy(handle)); }

  const Plan& plan_for(const Tensor& x, const Tensor& w, const Tensor& y) {
    const std::lock_guard lock(mutex);
    const Shape shape{x.dim(0), w.dim(0), x.dim(1), x.dtype(), y.dtype()};
    const auto found = plans.find(shape);
    return found != plans.end() ? found->second
                                : plans.emplace(shape, make_plan(x, w, y)).first->second;
  }

  Plan make_plan(const Tensor& x, const Tensor& w, const Tensor& y) const {
    Plan plan{};
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulPreference_t preference = nullptr;
    expect_success(library.make_description(&plan.description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                   "describe");
    expect_success(library.set_attribute(plan.description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                         sizeof(transposed)),
                   "transpose");
    const auto lay_out = [&](cublasLtMatrixLayout_t& layout, const Tensor& tensor) {
      const auto rows = static_cast<std::uint64_t>(tensor.dim(1));
      expect_success(library.make_layout(&layout, type_of(tensor), rows,
                                         static_cast<std::uint64_t>(tensor.dim(0)), tensor.dim(1)),
                     "lay out");
    };
    lay_out(plan.w, w);
    lay_out(plan.x, x);
    lay_out(plan.y, y);
    expect_success(library.make_preference(&preference), "prefer");
    expect_success(library.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                          &kWorkspaceBytes, sizeof(kWorkspaceBytes)),
                   "limit the workspace");
    int count = 0;  // to try the best eight, ask for more than one here, and time them
    expect_success(library.find_algorithms(handle, plan.description, plan.w, plan.x, plan.y, plan.y,
                                           preference, 1, &plan.chosen, &count),
                   "choose an algorithm");
    if (count == 0) throw DeviceError(CUBLAS_STATUS_NOT_SUPPORTED, "cuBLASLt has no algorithm");
    return plan;
  }

  void multiply(StreamRef stream, const Tensor& x, const Tensor& w, const Tensor& y) {
    const Plan& plan = plan_for(x, w, y);
    const Workspace workspace(stream.device(), plan.chosen.workspaceSize);
    const float one = 1, zero = 0;
    expect_success(
        library.matmul(handle, plan.description, &one, w.data(), plan.w, x.data(), plan.x, &zero,
                       y.data(), plan.y, y.data(), plan.y, &plan.chosen.algo, workspace.data(),
                       workspace.bytes(), cuda_stream(stream)),
        "multiply");
  }

  Library library;
  cublasLtHandle_t handle = nullptr;
  std::mutex mutex;
  std::map<Shape, Plan> plans;  // guarded by mutex; entries stay where they are
};
#else
struct Products::Cublas {
  void multiply(StreamRef, const Tensor&, const Tensor&, const Tensor&) {}
};
#endif

Products::Products(Device device) {
  if (device.type == DeviceType::kHost) return;
  check(device_api(device).set_device(device.id), "choose the device");
  cublas_ = std::make_unique<Cublas>();
}

Products::~Products() = default;

void Products::multiply(StreamRef stream, const Tensor& x, const Tensor& w, const Tensor& y) const {
  if (cublas_ && x.dim(0) > 1) return cublas_->multiply(stream, x, w, y);
  launch(stream,
         make_kernel<&multiply_on_host>("multiply", SERVE_CUDA_FUNCTION(multiply_row_on_cuda)),
         {.grid = {static_cast<std::uint32_t>(w.dim(0) / kRowWarps)}, .block = {32 * kRowWarps}},
         Product{{x.data()},
                 {w.data()},
                 {y.data()},
                 x.dim(0),
                 w.dim(0),
                 x.dim(1),
                 y.dtype() == DType::kFloat32});
}

}  // namespace cgtree::serve
