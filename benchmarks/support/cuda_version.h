// The version of the CUDA toolkit that the program was built with.
#pragma once

#include <cuda_runtime_api.h>

namespace cgtree::benchmarks {

inline constexpr int kCudaVersion = CUDART_VERSION;  // 13000 is 13.0

}  // namespace cgtree::benchmarks
