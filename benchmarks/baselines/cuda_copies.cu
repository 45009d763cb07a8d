// A hand-written copy kernel, and CUB's batched copy.
#include "benchmarks/baselines/cuda_copies.h"

#include <cuda_runtime.h>
#include <cub/device/device_memcpy.cuh>

#include <algorithm>

#include "interop/device/code.h"

namespace cgtree::benchmarks {
namespace {

constexpr std::size_t kMost = 64;

struct Addresses {
  const uint4* sources[kMost];
  uint4* destinations[kMost];
};

__global__ void copy_all(const __grid_constant__ Addresses addresses, std::size_t words) {
  const uint4* const from = addresses.sources[blockIdx.y];
  uint4* const to = addresses.destinations[blockIdx.y];
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words;
       i += gridDim.x * blockDim.x)
    to[i] = from[i];
}

cudaStream_t native(StreamRef stream) {
  return reinterpret_cast<cudaStream_t>(stream.handle());
}

void expect(cudaError_t error, const char* what) {
  check(static_cast<Code>(error), what);
}

}  // namespace

void copy_by_kernel(StreamRef stream, const std::vector<const void*>& sources,
                    const std::vector<void*>& destinations, std::size_t bytes) {
  Addresses addresses = {};
  for (std::size_t i = 0; i < sources.size(); ++i) {
    addresses.sources[i] = static_cast<const uint4*>(sources[i]);
    addresses.destinations[i] = static_cast<uint4*>(destinations[i]);
  }
  const std::size_t words = bytes / sizeof(uint4);
  const auto blocks = static_cast<unsigned>(std::clamp<std::size_t>(words / 256, 1, 1024));
  copy_all<<<dim3(blocks, static_cast<unsigned>(sources.size())), 256, 0, native(stream)>>>(
      addresses, words);
  expect(cudaGetLastError(), "copy by a kernel");
}

CubBatchedCopy::CubBatchedCopy(const std::vector<const void*>& sources,
                               const std::vector<void*>& destinations, std::size_t bytes)
    : count_(sources.size()) {
  expect(cudaMallocHost(&sources_, count_ * sizeof(void*)), "allocate a table");
  expect(cudaMallocHost(&destinations_, count_ * sizeof(void*)), "allocate a table");
  expect(cudaMallocHost(&sizes_, count_ * sizeof(std::size_t)), "allocate a table");
  std::copy(sources.begin(), sources.end(), sources_);
  std::copy(destinations.begin(), destinations.end(), destinations_);
  std::fill_n(sizes_, count_, bytes);
  expect(cub::DeviceMemcpy::Batched(nullptr, scratch_bytes_, sources_, destinations_, sizes_,
                                    static_cast<std::uint32_t>(count_)),
         "ask for scratch memory");
  expect(cudaMalloc(&scratch_, scratch_bytes_), "allocate scratch memory");
}

CubBatchedCopy::~CubBatchedCopy() {
  (void)cudaFree(scratch_);
  (void)cudaFreeHost(sizes_);
  (void)cudaFreeHost(destinations_);
  (void)cudaFreeHost(sources_);
}

void CubBatchedCopy::enqueue(StreamRef stream) {
  expect(cub::DeviceMemcpy::Batched(scratch_, scratch_bytes_, sources_, destinations_, sizes_,
                                    static_cast<std::uint32_t>(count_), native(stream)),
         "copy by CUB");
}

}  // namespace cgtree::benchmarks
