// Writes words that the host reads while work behind them runs.
#include "cgtree/check/cuda/mark_kernel.h"

#include <cstdint>

namespace cgtree::cuda {
namespace {

__global__ void write_words(std::uint32_t* words, std::uint64_t count, std::uint64_t value) {
  for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x)
    static_cast<volatile std::uint32_t*>(words)[i] = static_cast<std::uint32_t>(value);
  __threadfence_system();
}

}  // namespace

const void* write_words_function() noexcept {
  return reinterpret_cast<const void*>(&write_words);
}

}  // namespace cgtree::cuda
