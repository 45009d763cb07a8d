// cuda_launch(): cudaGraphLaunch itself, without the library's shim.
#pragma once

#include <cuda_runtime_api.h>

#include "interop/device/graph.h"

namespace cgtree::benchmarks {

// Requires that both are the cuda device's, where a handle is CUDA's own.
inline Code cuda_launch(const GraphExec& exec, StreamRef stream) {
  return static_cast<Code>(cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(exec.handle()),
                                           reinterpret_cast<cudaStream_t>(stream.handle())));
}

}  // namespace cgtree::benchmarks
