// CUB: algorithms over the whole device, with temporary storage allocated by the step.
#include <cub/cub.cuh>

#include <cstdint>
#include <string>

#include "base/error.h"
#include "benchmarks/libraries/library_steps.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"

namespace cgtree::benchmarks {
namespace {

constexpr int kCount = static_cast<int>(kInputFloats);

// Calls `algorithm(storage, bytes, stream)` as CUB requires: first for the bytes, then with the
// storage.
template <typename Algorithm>
void run(Device device, const Algorithm& algorithm) {
  const auto stream = static_cast<cudaStream_t>(current_stream().native());
  const auto expect_success = [](cudaError_t code) {
    if (code != cudaSuccess) throw DeviceError(code, std::string("CUB: ") + cudaGetErrorName(code));
  };
  std::size_t bytes = 0;
  expect_success(algorithm(nullptr, bytes, stream));
  const Workspace storage(device, bytes > 0 ? bytes : 1);
  expect_success(algorithm(storage.data(), bytes, stream));
}

Tensor scan(const Tensor& x) {
  Tensor y = empty(x.shape(), x.dtype());
  run(x.device(), [&](void* storage, std::size_t& bytes, cudaStream_t stream) {
    return cub::DeviceScan::InclusiveSum(storage, bytes, x.data<float>(), y.data<float>(), kCount,
                                         stream);
  });
  return y;
}

Tensor sort(const Tensor& x) {
  Tensor y = empty(x.shape(), x.dtype());
  run(x.device(), [&](void* storage, std::size_t& bytes, cudaStream_t stream) {
    return cub::DeviceRadixSort::SortKeys(storage, bytes, x.data<float>(), y.data<float>(), kCount,
                                          0, 32, stream);
  });
  return y;
}

Tensor reduce(const Tensor& x) {
  Tensor y = empty({1}, x.dtype());
  run(x.device(), [&](void* storage, std::size_t& bytes, cudaStream_t stream) {
    return cub::DeviceReduce::Sum(storage, bytes, x.data<float>(), y.data<float>(), kCount, stream);
  });
  return y;
}

}  // namespace

std::vector<LibraryStep> cub_steps() {
  return {{"CUB", "inclusive scan", scan}, {"CUB", "radix sort", sort}, {"CUB", "sum", reduce}};
}

}  // namespace cgtree::benchmarks
