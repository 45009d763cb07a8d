// parallel_for: one body per element, one source for both devices.
//
//   struct AddOne { const float* x; float* y;
//                   CGTREE_HOST_DEVICE void operator()(std::int64_t i) const { y[i] = x[i] + 1; }
//                   };
//   parallel_for(current_stream(), n, AddOne{x, y});
//
// Compiled by nvcc, it runs on a GPU and on the host device; by a C++ compiler, on the host device
// only. The body is a trivially copyable struct, copied at launch.
#pragma once

#include <cstdint>

#include "interop/device/host_device.h"
#include "interop/device/kernel.h"

namespace cgtree {
namespace detail {

template <typename Body>
void for_each_on_host(const LaunchDims&, std::int64_t count, Body body) {
  for (std::int64_t i = 0; i < count; ++i)
    body(i);
}

#ifdef __CUDACC__
template <typename Body>
__global__ void for_each_on_cuda(std::int64_t count, Body body) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    body(i);
  }
}
#endif

}  // namespace detail

// Runs body(i) for 0 <= i < count, in any order and at once. Nothing is launched for count == 0.
template <typename Body>
void parallel_for(StreamRef stream, std::int64_t count, const Body& body) {
  if (count <= 0) return;
#ifdef __CUDACC__
  const void* cuda = reinterpret_cast<const void*>(&detail::for_each_on_cuda<Body>);
#else
  const void* cuda = nullptr;
#endif
  const auto kernel = make_kernel<&detail::for_each_on_host<Body>>("parallel_for", cuda);
  constexpr std::int64_t kThreads = 256;
  constexpr std::int64_t kMaxBlocks = 4096;
  const std::int64_t blocks = (count + kThreads - 1) / kThreads;
  launch(stream, kernel,
         {.grid = {static_cast<std::uint32_t>(blocks < kMaxBlocks ? blocks : kMaxBlocks)},
          .block = {kThreads}},
         count, body);
}

}  // namespace cgtree
