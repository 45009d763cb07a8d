// The CUDA bodies of the norm and of what chooses tokens.
//
// They are deterministic: every sum has one order, and there are no atomics but on counts.
#pragma once

#include <cstdint>

#include "examples/serve/kernel_arguments.h"

namespace cgtree::serve {

inline constexpr int kChoiceThreads = 256;
inline constexpr int kTopKThreads = 1024;

__device__ inline std::uint64_t warp_max(std::uint64_t value) {
  for (int step = 16; step > 0; step /= 2) {
    const std::uint64_t other = __shfl_xor_sync(0xFFFFFFFF, value, step);
    value = other > value ? other : value;
  }
  return value;
}

// Grid: {rows}. A thread has eight elements.
template <typename T>
__global__ void add_norm_on_cuda(NormArguments<T> a) {
  __shared__ float sums[32];
  const std::int64_t column = threadIdx.x * 8;
  const std::int64_t at = blockIdx.x * a.width + column;
  const bool is_inside = column < a.width;
  Eight<float> x{}, gain{};
  if (is_inside) {
    x = load(a.x + at);
    gain = load(a.gain + column);
    if (a.delta != nullptr) {
      const Eight<float> delta = load(a.delta + at);
      for (int i = 0; i < 8; ++i)
        x.v[i] = to_float(from_float<T>(x.v[i] + delta.v[i]));
      store(a.x + at, x);
    }
  }
  float squares = 0;
  for (int i = 0; i < 8; ++i)
    squares += x.v[i] * x.v[i];
  squares = warp_sum(squares);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = squares;
  __syncthreads();
  squares = warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? sums[threadIdx.x % 32] : 0.0f);
  if (!is_inside) return;
  const float factor = rsqrtf(squares / static_cast<float>(a.width) + a.epsilon);
  for (int i = 0; i < 8; ++i)
    x.v[i] = to_float(from_float<T>(x.v[i] * factor)) * gain.v[i];
  store(a.y + at, x);
}

// Grid: {rows}. Finds the bits of the k-th largest from the highest on, eight at a time: each pass
// counts the values that have the bits found so far, by their next eight.
__global__ void __launch_bounds__(kTopKThreads) find_top_k_on_cuda(TopKArguments a) {
  __shared__ unsigned counts[256];
  __shared__ std::uint32_t found, remaining;
  if (threadIdx.x == 0) {
    found = 0;
    const std::int64_t all = a.parts * a.columns;
    remaining = static_cast<std::uint32_t>(a.k < all ? a.k : all);
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (threadIdx.x < 256) counts[threadIdx.x] = 0;
    __syncthreads();
    const std::uint32_t prefix = found;
    for (std::int64_t i = threadIdx.x; i < a.parts * a.columns; i += kTopKThreads) {
      const std::uint32_t bits = ordered_bits(a.logit(blockIdx.x, i));
      if (shift == 24 || bits >> (shift + 8) == prefix) atomicAdd(&counts[bits >> shift & 255], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int digit = 255;
      for (; digit > 0 && counts[digit] < remaining; --digit)
        remaining -= counts[digit];
      found = prefix << 8 | static_cast<std::uint32_t>(digit);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    const std::uint32_t bits = found & 0x80000000u ? found & 0x7FFFFFFFu : ~found;
    a.thresholds[blockIdx.x] = __uint_as_float(bits);
  }
}

// Returns the largest of the block to its first thread.
__device__ inline std::uint64_t block_max(std::uint64_t value) {
  __shared__ std::uint64_t values[32];
  value = warp_max(value);
  if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_max(threadIdx.x < blockDim.x / 32 ? values[threadIdx.x] : 0);
}

// Grid: {chunks, rows}.
__global__ void __launch_bounds__(kChoiceThreads) choose_on_cuda(ChoiceArguments a) {
  const std::int64_t first = blockIdx.x * a.chunk;
  const std::int64_t end = min(first + a.chunk, a.columns);
  std::uint64_t best = 0;
  for (std::int64_t i = first + 4 * threadIdx.x; i < end; i += 4 * kChoiceThreads) {
    const std::uint64_t key = a.best_of_four(blockIdx.y, i);
    best = key > best ? key : best;
  }
  best = block_max(best);
  if (threadIdx.x == 0) a.keys[blockIdx.x * a.rows + blockIdx.y] = best;
}

// Grid: {rows}.
__global__ void __launch_bounds__(kChoiceThreads) finish_choice_on_cuda(FinishArguments a) {
  std::uint64_t best = 0;
  for (std::int64_t chunk = threadIdx.x; chunk < a.chunks; chunk += kChoiceThreads) {
    const std::uint64_t key = a.keys[chunk * a.rows + blockIdx.x];
    best = key > best ? key : best;
  }
  best = block_max(best);
  if (threadIdx.x == 0) {
    a.next[blockIdx.x] = static_cast<std::int32_t>(~static_cast<std::uint32_t>(best));
  }
}

}  // namespace cgtree::serve
