// The CUDA bodies of the larger kernels: norm, attention, argmax and the matrix product.
//
// They are deterministic: every sum has one order, and there are no atomics. Threads stride over
// sizes, so any size works.
#pragma once

#include <cstdint>

#include "examples/serve/kernel_arguments.h"

namespace cgtree::serve {

inline constexpr int kWarps = kThreads / 32;

__device__ inline float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2)
    value += __shfl_xor_sync(0xFFFFFFFF, value, step);
  return value;
}

__device__ inline float warp_max(float value) {
  for (int step = 16; step > 0; step /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFF, value, step));
  return value;
}

// Returns the sum over the block to every thread. `scratch` is kWarps floats of shared memory.
__device__ inline float block_sum(float value, float* scratch) {
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < kWarps; ++warp)
    sum += scratch[warp];
  return sum;
}

__device__ inline float block_max(float value, float* scratch) {
  value = warp_max(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  float highest = scratch[0];
  for (int warp = 1; warp < kWarps; ++warp)
    highest = fmaxf(highest, scratch[warp]);
  return highest;
}

// Grid: {rows}.
__global__ void rms_norm_on_cuda(NormArguments a) {
  __shared__ float scratch[kWarps];
  const float* const x = a.x + blockIdx.x * a.width;
  float* const y = a.y + blockIdx.x * a.width;
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < a.width; i += kThreads)
    squares += x[i] * x[i];
  const float mean_square = block_sum(squares, scratch) / static_cast<float>(a.width);
  const float factor = rsqrtf(mean_square + kNormEpsilon);
  for (std::int64_t i = threadIdx.x; i < a.width; i += kThreads)
    y[i] = x[i] * factor * a.gain[i];
}

// Computes scores[i] = q . k[first + i] * scale for a tile of positions. A warp takes a position,
// and its threads stride over the head, so that reads are contiguous.
__device__ inline void score_tile(const AttentionArguments& a, const float* q, std::int64_t slot,
                                  std::int64_t first, int count, float* scores) {
  const int thread = threadIdx.x % 32;  // of the warp
  for (int i = threadIdx.x / 32; i < count; i += kWarps) {
    const float* const key = a.cache.keys + a.cache.row(slot, first + i) + blockIdx.y * a.head_size;
    float sum = 0;
    for (std::int64_t d = thread; d < a.head_size; d += 32)
      sum += q[d] * key[d];
    sum = warp_sum(sum);
    if (thread == 0) scores[i] = sum * a.scale;
  }
  __syncthreads();
}

// Grid: {rows, heads}. The softmax goes tile by tile with a running maximum, so that any window
// fits. The output row is the accumulator, and each of its elements belongs to one thread.
// Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
__global__ void attend_on_cuda(AttentionArguments a) {
  __shared__ float weights[kThreads];
  __shared__ float scratch[kWarps];
  const std::int64_t row = blockIdx.x;
  const std::int64_t offset = blockIdx.y * a.head_size;
  const float* const q = a.qkv + row * 3 * a.cache.hidden + offset;
  float* const out = a.out + row * a.cache.hidden + offset;
  for (std::int64_t d = threadIdx.x; d < a.head_size; d += kThreads)
    out[d] = 0;
  const std::int64_t slot = a.batch.slots[row];
  if (slot < 0) return;
  const std::int64_t window = a.cache.window(a.batch.positions[row]);
  const int thread = static_cast<int>(threadIdx.x);
  float highest = -INFINITY;
  float sum = 0;
  for (std::int64_t first = 0; first < window; first += kThreads) {
    const int count = static_cast<int>(min(window - first, static_cast<std::int64_t>(kThreads)));
    score_tile(a, q, slot, first, count, weights);
    const float score = thread < count ? weights[thread] : -INFINITY;
    const float raised = fmaxf(highest, block_max(score, scratch));
    const float shrink = expf(highest - raised);  // 0 for the first tile
    const float weight = expf(score - raised);    // 0 beyond the window
    weights[thread] = weight;
    sum = sum * shrink + block_sum(weight, scratch);  // also orders the weights
    const float* const values = a.cache.values + a.cache.row(slot, first) + offset;
    for (std::int64_t d = thread; d < a.head_size; d += kThreads) {
      float total = out[d] * shrink;
      for (int i = 0; i < count; ++i)
        total += weights[i] * values[i * a.cache.hidden + d];
      out[d] = total;
    }
    highest = raised;
    __syncthreads();  // the next tile writes the weights
  }
  for (std::int64_t d = threadIdx.x; d < a.head_size; d += kThreads)
    out[d] /= sum;
}

// Grid: {tiles of rows, tiles of columns}, so that blocks that run together read the same weights.
// The order of a sum depends on the depth alone. A library's product would choose it by the number
// of rows, and a padded batch would give other tokens.
__global__ void __launch_bounds__(kProductThreads) multiply_on_cuda(ProductArguments a) {
  constexpr int kStaged = 512;  // terms
  constexpr int kTerms = kProductThreads / 32;
  static_assert(kTerms == kProductRows && kProductColumns == 32);
  __shared__ float staged[kStaged][kProductRows];
  __shared__ float partial[kTerms][kProductRows][kProductColumns];
  const int thread = threadIdx.x % 32;  // of the warp
  const int warp = threadIdx.x / 32;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * kProductRows;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * kProductColumns + thread;
  float sums[kProductRows] = {};
  for (std::int64_t begin = 0; begin < a.depth; begin += kStaged) {
    const int count = static_cast<int>(min(a.depth - begin, static_cast<std::int64_t>(kStaged)));
    __syncthreads();
    // Warp r stages row r.
    for (int k = thread; k < count; k += 32)
      staged[k][warp] =
          first_row + warp < a.rows ? a.x[(first_row + warp) * a.depth + begin + k] : 0;
    __syncthreads();
    if (column >= a.columns) continue;
#pragma unroll 8
    for (int k = warp; k < count; k += kTerms) {
      const float weight = a.w[(begin + k) * a.columns + column];
      for (int r = 0; r < kProductRows; ++r)
        sums[r] += staged[k][r] * weight;
    }
  }
  for (int r = 0; r < kProductRows; ++r)
    partial[warp][r][thread] = sums[r];
  __syncthreads();
  // Warp r adds up row r.
  if (column >= a.columns || first_row + warp >= a.rows) return;
  float sum = 0;
  for (int term = 0; term < kTerms; ++term)
    sum += partial[term][warp][thread];
  float& y = a.y[(first_row + warp) * a.columns + column];
  y = a.accumulate ? y + sum : sum;
}

// Grid: {rows}. Equal logits: the lower index wins, as on the host.
__global__ void argmax_on_cuda(ArgmaxArguments a) {
  __shared__ float values[kThreads];
  __shared__ std::int32_t indices[kThreads];
  const float* const logits = a.logits + blockIdx.x * a.width;
  const int thread = static_cast<int>(threadIdx.x);
  float value = -INFINITY;
  std::int32_t index = thread < a.width ? thread : 0;
  for (std::int64_t i = thread; i < a.width; i += kThreads) {
    if (logits[i] > value) {
      value = logits[i];
      index = static_cast<std::int32_t>(i);
    }
  }
  values[thread] = value;
  indices[thread] = index;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread >= half) continue;
    const float other = values[thread + half];
    const std::int32_t other_index = indices[thread + half];
    if (other > values[thread] || (other == values[thread] && other_index < indices[thread])) {
      values[thread] = other;
      indices[thread] = other_index;
    }
  }
  if (thread == 0) a.next[blockIdx.x] = indices[0];
}

}  // namespace cgtree::serve
