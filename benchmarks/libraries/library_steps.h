// Steps that use a library, to measure the audit of their recordings.
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
  // A step function. Its input is float32 {kInputFloats}, in [0.5, 1); its results are made by
  // empty(). The numbers have no meaning.
  std::function<Tensor(const Tensor& x)> run;
  // The known origin of foreign pointers of this step; empty if there should be none.
  std::string foreign = {};
};

// Kernels of this repository; on every device.
std::vector<LibraryStep> own_steps();

// The functions below throw InvalidArgument with the remedy if the library cannot be loaded, and
// DeviceError if it cannot be used.
std::vector<LibraryStep> cublas_steps();
std::vector<LibraryStep> cublaslt_steps();
std::vector<LibraryStep> cub_steps();
std::vector<LibraryStep> cudnn_steps();

}  // namespace cgtree::benchmarks
