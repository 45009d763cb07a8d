// Kernel: a typed kernel; launch() and parallel_for(), through which both devices run kernels.
//
//   void scale_on_host(const LaunchDims&, float* x, float factor, std::int64_t n) { ... }
//   const Kernel<float*, float, std::int64_t> scale =
//       make_kernel<scale_on_host>("scale", cuda_scale);
//   launch(current_stream(), scale, {.grid = {blocks}, .block = {256}}, x, 2.0f, n);
//
// `cuda_scale` is the address of a __global__ function of the same parameters, or null. A loop over
// independent elements needs only one body:
//
//   struct AddOne {
//     const float* x;
//     float* y;
//     CGTREE_HOST_DEVICE void operator()(std::int64_t i) const { y[i] = x[i] + 1; }
//   };
//   parallel_for(current_stream(), n, AddOne{x, y});
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "interop/device/kernel_function.h"
#include "interop/device/stream.h"

namespace cgtree {

// A Kernel is a kernel with the types of its parameters, made by make_kernel(). Launches convert
// their arguments to these types.
template <typename... Parameters>
struct Kernel {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...),
                "kernel arguments are copied as bytes");
  KernelFunction function;
};

namespace detail {

template <auto Body, typename Signature>
struct HostEntry;

template <auto Body, typename... Parameters>
struct HostEntry<Body, void (*)(const LaunchDims&, Parameters...)> {
  using KernelType = Kernel<std::remove_cv_t<Parameters>...>;

  static void run(const LaunchDims& dims, const void* const* arguments) {
    call(dims, arguments, std::index_sequence_for<Parameters...>{});
  }

 private:
  template <std::size_t... I>
  static void call(const LaunchDims& dims, const void* const* arguments,
                   std::index_sequence<I...>) {
    Body(dims, *static_cast<const std::remove_cv_t<Parameters>*>(arguments[I])...);
  }
};

}  // namespace detail

// Makes a kernel from its host body `void(const LaunchDims&, parameters...)` and its CUDA function.
template <auto Body>
constexpr auto make_kernel(const char* name, const void* cuda = nullptr) {
  using Entry = detail::HostEntry<Body, decltype(Body)>;
  return typename Entry::KernelType{KernelFunction{name, &Entry::run, cuda}};
}

// Enqueues the kernel on `stream`, or adds a node while it captures. Makes the stream's device
// current meanwhile: default streams of all devices have the same handles, and kernels are launched
// on the current device. Arguments are copied. Throws DeviceError if the launch fails.
void enqueue_kernel(StreamRef stream, const KernelFunction& kernel, const LaunchDims& dims,
                    KernelArguments arguments);

// The same for a typed kernel.
template <typename... Parameters>
void launch(StreamRef stream, const Kernel<Parameters...>& kernel, const LaunchDims& dims,
            const std::type_identity_t<Parameters>&... arguments) {
  const std::array<KernelArgument, sizeof...(Parameters)> list = {
      {{&arguments, sizeof(arguments)}...}};
  enqueue_kernel(stream, kernel.function, dims, list);
}

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

// Runs body(i) for 0 <= i < count, in any order and concurrently; launches nothing if count == 0.
// The body is a trivially copyable struct, copied at launch. Compiled by nvcc, it runs on a GPU and
// on the host device; compiled by a C++ compiler, on the host device only.
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
