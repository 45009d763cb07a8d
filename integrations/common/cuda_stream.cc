// The current device of the CUDA runtime is that of the stream.
#include "integrations/common/cuda_stream.h"

#include <cstdint>

cgtree::StreamRef cgtree_ggml::ref_to(cudaStream_t stream) {
  cgtree::Device device = cgtree::Device::cuda();
  cudaGetDevice(&device.id);
  return {device, static_cast<cgtree::StreamHandle>(reinterpret_cast<std::uintptr_t>(stream))};
}
