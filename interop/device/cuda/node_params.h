// A kernel and its arguments as the CUDA runtime takes them.
#pragma once

#include <array>

#include "interop/device/code.h"
#include "interop/device/cuda/runtime.h"
#include "interop/device/kernel_function.h"

namespace cgtree::cuda {

// The runtime takes an array of addresses; it knows the sizes from the function.
struct ArgumentAddresses {
  std::array<void*, kMaxKernelArguments> addresses;

  explicit ArgumentAddresses(KernelArguments arguments) noexcept {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      addresses[i] = const_cast<void*>(arguments[i].data);
    }
  }
};

inline Code launchable(const KernelFunction& kernel, KernelArguments arguments) noexcept {
  if (kernel.cuda == nullptr) return Code::kInvalidDeviceFunction;
  return arguments.size() <= kMaxKernelArguments ? Code::kSuccess : Code::kInvalidValue;
}

inline dim3 to_dim3(const Dim3& dim) noexcept {
  return {dim.x, dim.y, dim.z};
}

inline cudaKernelNodeParams node_params(const KernelFunction& kernel, const LaunchDims& dims,
                                        ArgumentAddresses& list) noexcept {
  cudaKernelNodeParams params = {};
  params.func = const_cast<void*>(kernel.cuda);
  params.gridDim = to_dim3(dims.grid);
  params.blockDim = to_dim3(dims.block);
  params.sharedMemBytes = dims.shared_bytes;
  params.kernelParams = list.addresses.data();
  return params;
}

}  // namespace cgtree::cuda
