// The kernels for both devices. Without CUDA a C++ compiler compiles this file too.
#include "examples/bug_patterns/kernels.h"

#include "interop/device/kernel.h"

#ifdef __CUDACC__
#define PATTERNS_CUDA_FUNCTION(function) reinterpret_cast<const void*>(&function)
#else
#define PATTERNS_CUDA_FUNCTION(function) nullptr
#endif

namespace cgtree::bug_patterns {
namespace {

// One block covers all elements, so that a kernel has only the parameters of its host body.
constexpr std::uint32_t kThreads = 256;

CGTREE_HOST_DEVICE void scale_one(std::int64_t i, const float* x, const float* weights, float* y) {
  y[i] = x[i] * weights[i];
}
CGTREE_HOST_DEVICE void pass_one(std::int64_t i, const float* x, float* workspace, float* y) {
  workspace[i] = 2 * x[i];
  y[i] = workspace[i];
}
CGTREE_HOST_DEVICE void gather_one(std::int64_t i, const float* x, const std::int32_t* plan,
                                   float* y) {
  y[i] = x[plan[i]];
}
CGTREE_HOST_DEVICE void mask_one(std::int64_t i, const float* x, std::int64_t length, float* y) {
  y[i] = i < length ? x[i] : 0;
}

void scale_on_host(const LaunchDims&, const float* x, const float* weights, float* y,
                   std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    scale_one(i, x, weights, y);
}
void pass_on_host(const LaunchDims&, const float* x, float* workspace, float* y,
                  std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    pass_one(i, x, workspace, y);
}
void gather_on_host(const LaunchDims&, const float* x, const std::int32_t* plan, float* y,
                    std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    gather_one(i, x, plan, y);
}
void mask_on_host(const LaunchDims&, const float* x, std::int64_t length, float* y,
                  std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    mask_one(i, x, length, y);
}
void read_mask_on_host(const LaunchDims&, const float* x, const std::int64_t* length, float* y,
                       std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    mask_one(i, x, *length, y);
}

#ifdef __CUDACC__
__global__ void scale(const float* x, const float* weights, float* y, std::int64_t count) {
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x)
    scale_one(i, x, weights, y);
}
__global__ void pass(const float* x, float* workspace, float* y, std::int64_t count) {
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x)
    pass_one(i, x, workspace, y);
}
__global__ void gather(const float* x, const std::int32_t* plan, float* y, std::int64_t count) {
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x)
    gather_one(i, x, plan, y);
}
__global__ void mask(const float* x, std::int64_t length, float* y, std::int64_t count) {
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x)
    mask_one(i, x, length, y);
}
__global__ void read_mask(const float* x, const std::int64_t* length, float* y,
                          std::int64_t count) {
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x)
    mask_one(i, x, *length, y);
}
#endif

}  // namespace

void launch_scale(StreamRef stream, const float* x, const float* weights, float* y,
                  std::int64_t count) {
  launch(stream, make_kernel<&scale_on_host>("scale", PATTERNS_CUDA_FUNCTION(scale)),
         {.block = {kThreads}}, x, weights, y, count);
}

void launch_through_workspace(StreamRef stream, const float* x, float* workspace, float* y,
                              std::int64_t count) {
  launch(stream, make_kernel<&pass_on_host>("pass", PATTERNS_CUDA_FUNCTION(pass)),
         {.block = {kThreads}}, x, workspace, y, count);
}

void launch_gather(StreamRef stream, const float* x, const std::int32_t* plan, float* y,
                   std::int64_t count) {
  launch(stream, make_kernel<&gather_on_host>("gather", PATTERNS_CUDA_FUNCTION(gather)),
         {.block = {kThreads}}, x, plan, y, count);
}

void launch_mask(StreamRef stream, const float* x, std::int64_t length, float* y,
                 std::int64_t count) {
  launch(stream, make_kernel<&mask_on_host>("mask", PATTERNS_CUDA_FUNCTION(mask)),
         {.block = {kThreads}}, x, length, y, count);
}

void launch_mask(StreamRef stream, const float* x, const std::int64_t* length, float* y,
                 std::int64_t count) {
  launch(stream, make_kernel<&read_mask_on_host>("mask", PATTERNS_CUDA_FUNCTION(read_mask)),
         {.block = {kThreads}}, x, length, y, count);
}

}  // namespace cgtree::bug_patterns
