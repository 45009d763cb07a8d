// Counts the calls of the CUDA runtime by a program and its shared libraries.
#pragma once

#include <cstdint>

namespace cgtree_ggml {

struct CudaCalls {
  std::int64_t captures = 0;        // cudaStreamBeginCapture
  std::int64_t instantiations = 0;  // cudaGraphInstantiate
  std::int64_t updates = 0;         // cudaGraphExecUpdate
  std::int64_t launches = 0;        // cudaGraphLaunch
};

// Returns the calls so far. Requires: the runtime is linked as a shared library.
CudaCalls cuda_calls();

}  // namespace cgtree_ggml
