// A stream of the CUDA runtime as cgtree has it.
#pragma once

#include <cuda_runtime_api.h>

#include "interop/device/stream.h"

namespace cgtree_ggml {

// Requires: the device of the stream is current.
cgtree::StreamRef ref_to(cudaStream_t stream);

}  // namespace cgtree_ggml
