// KernelSet: named kernels from which a code generator makes a module.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "interop/device/kernel.h"

namespace cgtree {

struct NamedKernel {
  // For CUDA the name of a __global__ function, as C++ writes it: "scale", "ns::scale<float>".
  std::string name;
  HostBody host = nullptr;                   // null: not for the host device
  std::vector<std::size_t> parameter_bytes;  // of `host`
};

struct KernelSet {
  std::string cuda_source;  // CUDA C++ that has all the kernels; empty: not for GPUs
  std::vector<NamedKernel> kernels;

  // A kernel with a host body `void(const LaunchDims&, parameters...)`.
  template <auto Body>
  KernelSet& add(std::string name) {
    using Entry = detail::HostEntry<Body, decltype(Body)>;
    kernels.push_back({std::move(name), &Entry::run,
                       bytes_of(static_cast<typename Entry::KernelType*>(nullptr))});
    return *this;
  }
  // A kernel of the CUDA source alone.
  KernelSet& add(std::string name) {
    kernels.push_back({std::move(name), nullptr, {}});
    return *this;
  }

 private:
  template <typename... Parameters>
  static std::vector<std::size_t> bytes_of(Kernel<Parameters...>*) {
    return {sizeof(Parameters)...};
  }
};

}  // namespace cgtree
