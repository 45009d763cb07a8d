// Copies numbers to an address that a table on the device has.
#include <cuda_fp16.h>
#include <ggml.h>

#include "integrations/common/cuda_graphs.h"

namespace {

__global__ void copy_halves(const float* from, char* const* to, long long count) {
  __half* const destination = reinterpret_cast<__half*>(*to);
  for (long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<long long>(gridDim.x) * blockDim.x) {
    destination[i] = __float2half(from[i]);
  }
}

}  // namespace

bool cgtree_ggml::copy(cudaStream_t stream, const ggml_tensor& from, const ggml_tensor& to) {
  char* const* const entry = entry_for(from, to);
  if (entry == nullptr) return false;
  constexpr long long kThreads = 256, kMostBlocks = 1024;
  const long long count = ggml_nelements(&from);
  const long long blocks = (count + kThreads - 1) / kThreads;
  copy_halves<<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), kThreads, 0,
                stream>>>(static_cast<const float*>(from.data), entry, count);
  return true;
}
