// Attention over the paged cache on a GPU, as flash-decoding does it: the positions of a row are
// split over blocks, so that one row fills the GPU, and a second kernel merges their results.
//
// Source: Dao et al., "Flash-Decoding for long-context inference", 2023; the running maximum is
// Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
#pragma once

#include <cstdint>

#include "examples/serve/kernel_arguments.h"

namespace cgtree::serve {

inline constexpr int kAttendThreads = 128;
inline constexpr float kNoScore = -1e30f;  // finite: a difference of two is not NaN

// The softmax of some of the positions: the largest score in units of log 2, the sum of weights,
// and the weighted sum of eight elements of the values.
struct Softmax {
  float highest = kNoScore;
  float sum = 0;
  Eight<float> values{};

  __device__ void rescale(float raised) {
    const float factor = exp2f(highest - raised);
    highest = raised;
    sum *= factor;
    for (int i = 0; i < 8; ++i)
      values.v[i] *= factor;
  }
};

// Grid: {rows, heads / kGroup, splits}. kGroup queries share the keys and values that a block
// reads. A thread has eight elements of a head, kSize / 8 threads have one position, and a thread
// reads kAtOnce positions before it computes, so that enough bytes are on their way.
template <typename T, int kSize, int kGroup>
__global__ void __launch_bounds__(kAttendThreads) attend_on_cuda(AttentionArguments<T> a) {
  constexpr int kThreadsPerPosition = kSize / 8;
  constexpr int kPositions = kAttendThreads / kThreadsPerPosition;  // of a block
  constexpr int kAtOnce = 4;
  constexpr int kWarps = kAttendThreads / 32;
  const int part = threadIdx.x % kThreadsPerPosition * 8;
  const int place = threadIdx.x / kThreadsPerPosition;
  const std::int64_t row = blockIdx.x;
  const std::int64_t first_head = blockIdx.y * kGroup;
  const std::int64_t kv_head = first_head / (a.heads / a.cache.kv_heads);
  const std::int32_t* const blocks = a.batch.blocks(row);
  const int length = a.batch.position(row) + 1;
  const int per_split = (length + a.splits - 1) / a.splits;
  const int begin = blockIdx.z * per_split;
  const int end = min(length, begin + per_split);

  Eight<float> q[kGroup];
  Softmax state[kGroup];
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    q[g] = load(a.qkv + row * a.qkv_width() + (first_head + g) * kSize + part);
    for (int i = 0; i < 8; ++i)
      q[g].v[i] *= a.scale * 1.44269504f;  // log2(e)
  }
  for (int first = begin; first < end; first += kPositions * kAtOnce) {
    Eight<T> keys[kAtOnce], values[kAtOnce];
    bool is_inside[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int position = first + u * kPositions + place;
      is_inside[u] = position < end;
      const std::int64_t at = a.cache.at(blocks, kv_head, is_inside[u] ? position : begin) + part;
      keys[u] = load_eight(a.cache.keys + at);
      values[u] = load_eight(a.cache.values + at);
    }
    float scores[kAtOnce][kGroup];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const Eight<float> key = widen(keys[u]);
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        float score = 0;
        for (int i = 0; i < 8; ++i)
          score += q[g].v[i] * key.v[i];
#pragma unroll
        for (int step = 1; step < kThreadsPerPosition; step *= 2)
          score += __shfl_xor_sync(0xFFFFFFFF, score, step);
        scores[u][g] = is_inside[u] ? score : -INFINITY;
      }
    }
#pragma unroll
    for (int g = 0; g < kGroup; ++g) {
      float raised = state[g].highest;
      for (int u = 0; u < kAtOnce; ++u)
        raised = fmaxf(raised, scores[u][g]);
      state[g].rescale(raised);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const Eight<float> value = widen(values[u]);
#pragma unroll
      for (int g = 0; g < kGroup; ++g) {
        const float weight = exp2f(scores[u][g] - state[g].highest);  // 0 outside
        state[g].sum += weight;
        for (int i = 0; i < 8; ++i)
          state[g].values.v[i] += weight * value.v[i];
      }
    }
  }

  // Merges the positions of a warp, then those of the warps.
  __shared__ float warp_values[kWarps][kGroup][kSize];
  __shared__ float warp_highest[kWarps][kGroup], warp_sums[kWarps][kGroup];
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    Softmax& s = state[g];
#pragma unroll
    for (int step = kThreadsPerPosition; step < 32; step *= 2) {
      s.rescale(fmaxf(s.highest, __shfl_xor_sync(0xFFFFFFFF, s.highest, step)));
      s.sum += __shfl_xor_sync(0xFFFFFFFF, s.sum, step);
      for (int i = 0; i < 8; ++i)
        s.values.v[i] += __shfl_xor_sync(0xFFFFFFFF, s.values.v[i], step);
    }
    if (threadIdx.x % 32 < kThreadsPerPosition) {
      for (int i = 0; i < 8; ++i)
        warp_values[warp][g][part + i] = s.values.v[i];
      warp_highest[warp][g] = s.highest;
      warp_sums[warp][g] = s.sum;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kGroup * kSize; i += kAttendThreads) {
    const int g = i / kSize, d = i % kSize;
    float highest = kNoScore, sum = 0, value = 0;
    for (int w = 0; w < kWarps; ++w)
      highest = fmaxf(highest, warp_highest[w][g]);
    for (int w = 0; w < kWarps; ++w) {
      const float factor = exp2f(warp_highest[w][g] - highest);
      sum += warp_sums[w][g] * factor;
      value += warp_values[w][g][d] * factor;
    }
    const std::int64_t head = row * a.heads + first_head + g;
    if (a.splits == 1) {
      a.out[head * kSize + d] = from_float<T>(sum > 0 ? value / sum : 0.0f);
    } else {
      float* const partial = a.partials + (head * a.splits + blockIdx.z) * (kSize + 2);
      partial[d] = value;
      if (d == 0) partial[kSize] = highest, partial[kSize + 1] = sum;
    }
  }
}

// Grid: {rows * heads}, a thread for each element of a head.
template <typename T>
__global__ void merge_splits_on_cuda(AttentionArguments<T> a) {
  const int size = blockDim.x, stride = size + 2;
  const float* const partials =
      a.partials + static_cast<std::int64_t>(blockIdx.x) * a.splits * stride;
  float highest = kNoScore, sum = 0, value = 0;
  for (int s = 0; s < a.splits; ++s)
    highest = fmaxf(highest, partials[s * stride + size]);
  for (int s = 0; s < a.splits; ++s) {
    const float factor = exp2f(partials[s * stride + size] - highest);
    sum += partials[s * stride + size + 1] * factor;
    value += partials[s * stride + threadIdx.x] * factor;
  }
  a.out[static_cast<std::int64_t>(blockIdx.x) * size + threadIdx.x] =
      from_float<T>(sum > 0 ? value / sum : 0.0f);
}

template <typename T, int kSize>
const void* attend_for(std::int64_t group) {
  if (group % 4 == 0) return reinterpret_cast<const void*>(&attend_on_cuda<T, kSize, 4>);
  if (group % 2 == 0) return reinterpret_cast<const void*>(&attend_on_cuda<T, kSize, 2>);
  return reinterpret_cast<const void*>(&attend_on_cuda<T, kSize, 1>);
}

// Returns the kernel for a head size and for how many queries share keys and values.
template <typename T>
const void* attend_for(std::int64_t head_size, std::int64_t group) {
  switch (head_size) {
    case 16:
      return attend_for<T, 16>(group);
    case 32:
      return attend_for<T, 32>(group);
    case 64:
      return attend_for<T, 64>(group);
    default:
      return attend_for<T, 128>(group);
  }
}

}  // namespace cgtree::serve
