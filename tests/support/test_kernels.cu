// The bodies of the test kernels; compiled by nvcc, or by the C++ compiler for the host only.
#include "tests/support/test_kernels.h"

#include <atomic>
#include <thread>

#ifdef __CUDACC__
#define CGTREE_TEST_BODY __host__ __device__
#else
#define CGTREE_TEST_BODY
#endif

namespace cgtree::testing {
namespace {

CGTREE_TEST_BODY void fill_one(std::int64_t i, float* x, float value) {
  x[i] = value;
}
CGTREE_TEST_BODY void add_one_to_one(std::int64_t i, float* x) {
  x[i] += 1;
}
CGTREE_TEST_BODY void axpy_one(std::int64_t i, float a, const float* x, float* y) {
  y[i] += a * x[i];
}
CGTREE_TEST_BODY void sum_all(const float* values, int count, float* y) {
  *y = 0;
  for (int i = 0; i < count; ++i)
    *y += values[i];
}

template <typename T>
const T& argument(const void* const* arguments, int index) {
  return *static_cast<const T*>(arguments[index]);
}

void fill_on_host(const LaunchDims&, const void* const* arguments) {
  for (std::int64_t i = 0; i < argument<std::int64_t>(arguments, 2); ++i)
    fill_one(i, argument<float*>(arguments, 0), argument<float>(arguments, 1));
}

void add_one_on_host(const LaunchDims&, const void* const* arguments) {
  for (std::int64_t i = 0; i < argument<std::int64_t>(arguments, 1); ++i)
    add_one_to_one(i, argument<float*>(arguments, 0));
}

void axpy_on_host(const LaunchDims&, const void* const* arguments) {
  for (std::int64_t i = 0; i < argument<std::int64_t>(arguments, 3); ++i) {
    axpy_one(i, argument<float>(arguments, 0), argument<const float*>(arguments, 1),
             argument<float*>(arguments, 2));
  }
}

void sum_on_host(const LaunchDims&, const void* const* arguments) {
  const auto& weights = argument<Weights>(arguments, 0);
  sum_all(weights.values.data(), static_cast<int>(weights.values.size()),
          argument<float*>(arguments, 1));
}

void spin_on_host(const LaunchDims&, const void* const* arguments) {
  auto* const flag = argument<std::uint32_t*>(arguments, 0);
  while (std::atomic_ref(*flag).load(std::memory_order_acquire) == 0)
    std::this_thread::yield();
}

#ifdef __CUDACC__
__device__ std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__global__ void fill_on_cuda(float* x, float value, std::int64_t count) {
  if (thread_index() < count) fill_one(thread_index(), x, value);
}
__global__ void add_one_on_cuda(float* x, std::int64_t count) {
  if (thread_index() < count) add_one_to_one(thread_index(), x);
}
__global__ void axpy_on_cuda(float a, const float* x, float* y, std::int64_t count) {
  if (thread_index() < count) axpy_one(thread_index(), a, x, y);
}
__global__ void sum_on_cuda(Weights weights, float* y) {
  // Not weights.values[i]: std::array's members are host functions.
  constexpr int kCount = sizeof(Weights) / sizeof(float);
  if (thread_index() == 0) sum_all(reinterpret_cast<const float*>(&weights), kCount, y);
}
__global__ void spin_on_cuda(std::uint32_t* flag) {
  while (*reinterpret_cast<volatile std::uint32_t*>(flag) == 0) {
  }
}

#define CGTREE_TEST_GLOBAL(function) reinterpret_cast<const void*>(&function)
#else
#define CGTREE_TEST_GLOBAL(function) nullptr
#endif

}  // namespace

KernelFunction fill_kernel() {
  return {"fill", &fill_on_host, CGTREE_TEST_GLOBAL(fill_on_cuda)};
}

KernelFunction add_one_kernel() {
  return {"add_one", &add_one_on_host, CGTREE_TEST_GLOBAL(add_one_on_cuda)};
}

KernelFunction axpy_kernel() {
  return {"axpy", &axpy_on_host, CGTREE_TEST_GLOBAL(axpy_on_cuda)};
}

KernelFunction sum_kernel() {
  return {"sum", &sum_on_host, CGTREE_TEST_GLOBAL(sum_on_cuda)};
}

KernelFunction spin_kernel() {
  return {"spin", &spin_on_host, CGTREE_TEST_GLOBAL(spin_on_cuda), /*waits=*/true};
}

LaunchDims dims_for(std::int64_t count) {
  constexpr std::int64_t kThreads = 128;
  return {.grid = {static_cast<std::uint32_t>((count + kThreads - 1) / kThreads)},
          .block = {kThreads}};
}

}  // namespace cgtree::testing
