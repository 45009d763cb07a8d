// Steps that use a library: what the audit of their recordings is measured on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "interop/device/device.h"
#include "interop/tensor/tensor.h"

namespace cgtree::benchmarks {

inline constexpr std::int64_t kInputFloats = 1 << 20;

struct LibraryStep {
  std::string library;
  std::string name;
  // A step function. Its input is float32 {kInputFloats}, in [0.5, 1); what it returns is made by
  // empty(). It does not use it for numbers that mean anything.
  std::function<Tensor(const Tensor& x)> run;
  // What foreign pointers of this step are known to be; empty if there should be none.
  std::string foreign = {};
};

// Kernels of this repository; on every device.
std::vector<LibraryStep> own_steps();

// The functions below throw InvalidArgument with what to do if the library cannot be loaded, and
// DeviceError if it cannot be used.
std::vector<LibraryStep> cublas_steps();
std::vector<LibraryStep> cublaslt_steps();
std::vector<LibraryStep> cub_steps();
std::vector<LibraryStep> cudnn_steps();

}  // namespace cgtree::benchmarks
