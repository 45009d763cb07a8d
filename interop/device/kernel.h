// Kernel: a typed kernel and launch(), the one door through which both devices run kernels.
//
//   void scale_on_host(const LaunchDims&, float* x, float factor, std::int64_t n) { ... }
//   const Kernel<float*, float, std::int64_t> scale = make_kernel<scale_on_host>("scale",
//   cuda_scale); launch(current_stream(), scale, {.grid = {blocks}, .block = {256}}, x, 2.0f, n);
//
// `cuda_scale` is the address of a __global__ function of the same parameters, or null. For a loop
// over independent elements, parallel_for.h needs no second body.
#pragma once

#include <array>
#include <type_traits>
#include <utility>

#include "interop/device/kernel_function.h"
#include "interop/device/stream.h"

namespace cgtree {

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

// A kernel from its host body `void(const LaunchDims&, parameters...)` and its CUDA function.
template <auto Body>
constexpr auto make_kernel(const char* name, const void* cuda = nullptr) {
  using Entry = detail::HostEntry<Body, decltype(Body)>;
  return typename Entry::KernelType{KernelFunction{name, &Entry::run, cuda}};
}

// Enqueues the kernel on `stream`, or adds a node while it captures. Arguments are copied.
// Throws DeviceError if the launch is refused.
template <typename... Parameters>
void launch(StreamRef stream, const Kernel<Parameters...>& kernel, const LaunchDims& dims,
            const std::type_identity_t<Parameters>&... arguments) {
  const std::array<KernelArgument, sizeof...(Parameters)> list = {
      {{&arguments, sizeof(arguments)}...}};
  check(stream.graphs().launch_kernel(stream.handle(), kernel.function, dims, list),
        kernel.function.name);
}

}  // namespace cgtree
