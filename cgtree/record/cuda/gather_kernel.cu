// The gather kernel on a GPU: one block per chunk of the table.
#include "cgtree/record/cuda/gather_kernel.h"

#include "cgtree/record/gather.h"
#include "interop/tensor/cuda/copy_row.cuh"

namespace cgtree::cuda {
namespace {

__device__ void write_values(std::uint64_t to, const std::uint64_t* words, std::uint32_t bytes) {
  const auto* const values = reinterpret_cast<const std::uint8_t*>(words);
  const std::uint32_t whole = to % sizeof(*words) == 0 ? bytes / sizeof(*words) : 0;
  for (std::uint32_t i = threadIdx.x; i < whole; i += kGatherThreads)
    at<std::uint64_t>(to)[i] = words[i];
  for (std::uint32_t i = whole * sizeof(*words) + threadIdx.x; i < bytes; i += kGatherThreads)
    at<std::uint8_t>(to)[i] = values[i];
}

__global__ void __launch_bounds__(kGatherThreads)
    write_all(const __grid_constant__ Words<kMaxGatherWords> words, std::uint64_t to,
              std::uint32_t bytes) {
  write_values(to, words.list, bytes);
}

template <std::size_t Capacity>
__global__ void __launch_bounds__(kGatherThreads)
    gather(const __grid_constant__ Words<Capacity> words, const GatherChunk* __restrict__ chunks,
           std::uint32_t count) {
  if (blockIdx.x >= count) return;
  const GatherChunk chunk = chunks[blockIdx.x];
  const std::uint64_t* const own = words.list + chunk.word;
  switch (chunk.work) {
    case GatherWork::kIn:
      return copy_linear(chunk.place, own[0] + chunk.offset, chunk.bytes);
    case GatherWork::kOut:
      return copy_linear(own[0] + chunk.offset, chunk.place, chunk.bytes);
    case GatherWork::kValues:
      return write_values(chunk.place, own, chunk.bytes);
    case GatherWork::kRow:
      return copy_row(reinterpret_cast<const GatherRow*>(chunks + count)[chunk.place], own,
                      chunk.offset, chunk.offset + chunk.bytes);
  }
}

template <typename Function>
const void* address_of(Function* function) {
  return reinterpret_cast<const void*>(function);
}

}  // namespace

const void* gather_function(std::size_t capacity) noexcept {
  switch (capacity) {
    case 1:
      return address_of(&gather<1>);
    case 4:
      return address_of(&gather<4>);
    case 16:
      return address_of(&gather<16>);
    case 64:
      return address_of(&gather<64>);
    default:
      return address_of(&gather<kMaxGatherWords>);
  }
}

const void* write_function() noexcept {
  return address_of(&write_all);
}

}  // namespace cgtree::cuda
