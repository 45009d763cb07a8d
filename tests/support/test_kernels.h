// Kernels for tests, the same on every device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "interop/device/kernel_function.h"

namespace cgtree::testing {

KernelFunction fill_kernel();     // (float* x, float value, int64 count): x[i] = value
KernelFunction add_one_kernel();  // (float* x, int64 count): x[i] += 1
KernelFunction axpy_kernel();     // (float a, const float* x, float* y, int64 count): y += a * x
KernelFunction sum_kernel();      // (Weights w, float* y): *y = the sum of w.values
KernelFunction spin_kernel();  // (uint32* flag): ends when the host has set *flag, in pinned memory

// A struct of 80 bytes, passed by value.
struct Weights {
  std::array<float, 20> values;
};

// Returns the dimensions of one grid that covers `count` elements.
LaunchDims dims_for(std::int64_t count);

// The arguments of one launch: references to values that must outlive the call.
template <typename... Arguments>
std::array<KernelArgument, sizeof...(Arguments)> arguments_of(const Arguments&... arguments) {
  return {{{&arguments, sizeof(arguments)}...}};
}

}  // namespace cgtree::testing
