// CUDA itself, without cgtree in between: the toolkit's version and cudaGraphLaunch.
//
// Programs include this only where CGTREE_WITH_CUDA is defined.
#pragma once

#include <cuda_runtime_api.h>

#include "interop/device/code.h"
#include "interop/device/graph.h"

namespace cgtree::benchmarks {

// The toolkit that the program was built with; 13000 is 13.0.
inline constexpr int kCudaVersion = CUDART_VERSION;

// Requires: both belong to the cuda device, whose handles are CUDA's own.
inline Code cuda_launch(const GraphExec& exec, StreamRef stream) {
  return static_cast<Code>(cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(exec.handle()),
                                           reinterpret_cast<cudaStream_t>(stream.handle())));
}

}  // namespace cgtree::benchmarks
