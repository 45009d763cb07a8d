// Attention over the paged cache. Without CUDA a C++ compiler compiles this file too.
//
// On a GPU it follows flash-decoding: the positions of a row are split over blocks, so that one row
// fills the GPU, and a second kernel merges their results.
//
// Source: Dao et al., "Flash-Decoding for long-context inference", 2023; the running maximum is
// Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
#include <algorithm>
#include <cmath>
#include <vector>

#include "examples/serve/kernels.h"
#include "examples/serve/paged_cache.h"
#include "interop/device/kernel.h"
#include "interop/tensor/empty.h"

namespace cgtree::serve {
namespace {

struct Attention {
  Numbers qkv;
  Numbers out;
  // With more than one split, float32 {rows, heads, splits, head_size + 2}: for each split the
  // weighted sum of values, the largest score, and the sum of weights.
  float* partials;
  BatchView batch;
  CacheView cache;
  std::int64_t rows;
  std::int64_t heads;
  std::int32_t splits;  // of the positions of a row
  float scale;

  CGTREE_HOST_DEVICE std::int64_t qkv_width() const {
    return (heads + 2 * cache.kv_heads) * cache.head_size;
  }
};

void attend_one(const Attention& a, std::int64_t row, std::int64_t head,
                std::vector<float>& scores) {
  const std::int64_t size = a.cache.head_size, kv_head = head / (a.heads / a.cache.kv_heads);
  const std::int32_t* const blocks = a.batch.blocks(row);
  const std::int32_t count = a.batch.position(row) + 1;
  const float* const q = a.qkv.on_host() + row * a.qkv_width() + head * size;
  float* const out = a.out.on_host() + (row * a.heads + head) * size;
  std::fill_n(out, size, 0.0f);
  if (count == 0) return;
  scores.clear();
  for (std::int32_t p = 0; p < count; ++p) {
    const float* const key = a.cache.keys.on_host() + a.cache.at(blocks, kv_head, p);
    scores.push_back(dot_on_host(q, key, size) * a.scale);
  }
  const float highest = *std::max_element(scores.begin(), scores.end());
  float total = 0;
  for (std::int32_t p = 0; p < count; ++p) {
    const float* const value = a.cache.values.on_host() + a.cache.at(blocks, kv_head, p);
    const float weight = std::exp(scores[static_cast<std::size_t>(p)] - highest);
    total += weight;
    for (std::int64_t d = 0; d < size; ++d)
      out[d] += weight * value[d];
  }
  for (std::int64_t d = 0; d < size; ++d)
    out[d] /= total;
}

void attend_on_host(const LaunchDims&, Attention a) {
  std::vector<float> scores;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    for (std::int64_t head = 0; head < a.heads; ++head)
      attend_one(a, row, head, scores);
  }
}

constexpr int kAttendThreads = 128;

#ifdef __CUDACC__
constexpr float kNoScore = -1e30f;  // finite: a difference of two is not NaN

// The softmax of some of the positions: the largest score in units of log 2, the sum of weights,
// and the weighted sum of eight elements of the values.
struct Softmax {
  float highest = kNoScore;
  float sum = 0;
  Eight values{};

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
// reads kAtOnce positions before it computes, so that enough loads are in flight.
template <int kSize, int kGroup>
__global__ void __launch_bounds__(kAttendThreads) attend_on_cuda(Attention a) {
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

  Eight q[kGroup];
  Softmax state[kGroup];
#pragma unroll
  for (int g = 0; g < kGroup; ++g) {
    q[g] = a.qkv.load(row * a.qkv_width() + (first_head + g) * kSize + part);
    for (int i = 0; i < 8; ++i)
      q[g].v[i] *= a.scale * 1.44269504f;  // log2(e)
  }
  for (int first = begin; first < end; first += kPositions * kAtOnce) {
    Packed keys[kAtOnce], values[kAtOnce];
    bool is_inside[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int position = first + u * kPositions + place;
      is_inside[u] = position < end;
      const std::int64_t at = a.cache.at(blocks, kv_head, is_inside[u] ? position : begin) + part;
      keys[u] = a.cache.keys.load_packed(at);
      values[u] = a.cache.values.load_packed(at);
    }
    float scores[kAtOnce][kGroup];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const Eight key = widen(keys[u]);
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
      const Eight value = widen(values[u]);
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
      a.out.set(head * kSize + d, sum > 0 ? value / sum : 0.0f);
    } else {
      float* const partial = a.partials + (head * a.splits + blockIdx.z) * (kSize + 2);
      partial[d] = value;
      if (d == 0) partial[kSize] = highest, partial[kSize + 1] = sum;
    }
  }
}

// Grid: {rows * heads}, a thread for each element of a head.
__global__ void merge_splits_on_cuda(Attention a) {
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
  a.out.set(static_cast<std::int64_t>(blockIdx.x) * size + threadIdx.x,
            sum > 0 ? value / sum : 0.0f);
}
#endif

template <int kSize>
const void* attend_for([[maybe_unused]] std::int64_t shared) {
  if (shared == 4) return SERVE_CUDA_FUNCTION(attend_on_cuda<kSize, 4>);
  if (shared == 2) return SERVE_CUDA_FUNCTION(attend_on_cuda<kSize, 2>);
  return SERVE_CUDA_FUNCTION(attend_on_cuda<kSize, 1>);
}

// Returns the kernel for a head size and a number of queries that share keys and values.
const void* attend_for(std::int64_t head_size, std::int64_t shared) {
  if (head_size == 16) return attend_for<16>(shared);
  if (head_size == 32) return attend_for<32>(shared);
  return head_size == 64 ? attend_for<64>(shared) : attend_for<128>(shared);
}

// The number of blocks that a large GPU runs at once, 132 multiprocessors with four blocks each,
// but at least 32 positions for a block. It depends on the context and not on a row's length, which
// differs between replays.
std::int32_t splits_of(Device device, std::int64_t blocks, std::int64_t context) {
  if (device.type == DeviceType::kHost) return 1;
  const std::int64_t most = std::clamp<std::int64_t>(context / 32, 1, 64);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(4 * 132 / blocks, 1, most));
}

}  // namespace

void attend(StreamRef stream, const Tensor& batch, const Tensor& qkv, const Tensor& kv_cache,
            std::int64_t layer, const Tensor& out) {
  const CacheView cache(kv_cache, layer);
  const std::int64_t rows = batch.dim(0), size = cache.head_size, heads = out.dim(1) / size;
  const std::int64_t group = heads / cache.kv_heads;
  const std::int64_t shared = group % 4 == 0 ? 4 : group % 2 == 0 ? 2 : 1;
  const std::int32_t splits =
      splits_of(stream.device(), rows * heads / shared, (batch.dim(1) - 2) * kBlockSize);
  Tensor partials;
  if (splits > 1)
    partials = empty({rows, heads, splits, size + 2}, DType::kFloat32, stream.device());
  const Attention a{{qkv.data()},
                    {out.data()},
                    splits > 1 ? partials.data<float>() : nullptr,
                    BatchView(batch),
                    cache,
                    rows,
                    heads,
                    splits,
                    1.0f / std::sqrt(static_cast<float>(size))};
  const auto grid = [](std::int64_t count) { return static_cast<std::uint32_t>(count); };
  launch(stream, make_kernel<&attend_on_host>("attend", attend_for(size, shared)),
         {.grid = {grid(rows), grid(heads / shared), grid(splits)}, .block = {kAttendThreads}}, a);
  if (splits == 1) return;
  launch(stream,
         make_kernel<&attend_on_host>("merge_splits", SERVE_CUDA_FUNCTION(merge_splits_on_cuda)),
         {.grid = {grid(rows * heads)}, .block = {grid(size)}}, a);
}

}  // namespace cgtree::serve
