// The kernel that copies one row: one block per chunk.
#include "interop/tensor/cuda/row_kernel.h"

#include "interop/tensor/cuda/copy_row.cuh"

namespace cgtree::cuda {
namespace {

__global__ void __launch_bounds__(kGatherThreads)
    copy_one_row(const __grid_constant__ GatherRow row,
                 const __grid_constant__ Words<kMaxRowWords> words, std::uint64_t bytes) {
  const std::uint64_t begin = std::uint64_t{blockIdx.x} * kGatherChunkBytes;
  const std::uint64_t rest = bytes - begin;
  const auto here = static_cast<std::uint32_t>(rest < kGatherChunkBytes ? rest : kGatherChunkBytes);
  const bool is_in = row.direction == GatherDirection::kIn;
  if (row.rank > 0) return copy_row(row, words.list, begin, begin + here);
  const std::uint64_t moving = words.list[0] + begin;
  copy_linear(is_in ? row.fixed + begin : moving, is_in ? moving : row.fixed + begin, here);
}

__global__ void __launch_bounds__(kGatherThreads)
    copy_one_measured_row(const __grid_constant__ GatherRow row,
                          const __grid_constant__ Words<kMaxRowWords> words, std::uint64_t bytes,
                          const __grid_constant__ Words<kMaxGatherRank> sizes) {
  __shared__ std::uint64_t measured[kMaxRowWords];
  for (std::uint32_t i = threadIdx.x; i < 1 + 2 * row.rank; i += kGatherThreads) {
    const std::uint64_t size = i > 0 && i <= row.rank ? sizes.list[i - 1] : 0;
    measured[i] = size == 0 ? words.list[i] : *at<const std::uint64_t>(size);
  }
  __syncthreads();
  const std::uint64_t begin = std::uint64_t{blockIdx.x} * kGatherChunkBytes;
  const std::uint64_t rest = bytes - begin;
  copy_row(row, measured, begin, begin + (rest < kGatherChunkBytes ? rest : kGatherChunkBytes));
}

}  // namespace

const void* measured_row_function() noexcept {
  return reinterpret_cast<const void*>(&copy_one_measured_row);
}

const void* row_function() noexcept {
  return reinterpret_cast<const void*>(&copy_one_row);
}

}  // namespace cgtree::cuda
