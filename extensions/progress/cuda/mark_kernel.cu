// Writes the device's clock to memory that the host reads while later work runs.
#include "extensions/progress/cuda/mark_kernel.h"

#include <cstdint>

namespace cgtree::cuda {
namespace {

__global__ void write_clock(std::uint64_t* words, std::uint64_t cleared, std::uint64_t word) {
  for (std::uint64_t i = threadIdx.x; i < cleared; i += blockDim.x)
    words[i] = 0;
  __syncthreads();
  if (threadIdx.x != 0) return;
  std::uint64_t nanoseconds = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds));
  *static_cast<volatile std::uint64_t*>(words + word) = nanoseconds;
  __threadfence_system();
}

}  // namespace

const void* write_clock_function() noexcept {
  return reinterpret_cast<const void*>(&write_clock);
}

// Source: CUDA Programming Guide, "Lazy Loading".
void load_write_clock() noexcept {
  cudaFuncAttributes attributes = {};
  if (cudaFuncGetAttributes(&attributes, write_clock_function()) != cudaSuccess) {
    (void)cudaGetLastError();  // inserting the kernel reports the error
  }
}

}  // namespace cgtree::cuda
