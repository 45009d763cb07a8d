// The arguments of the larger kernels, and their bodies on the host device.
//
// All matrices are row-major float32. Row r of a step belongs to slot slots[r]; -1 is a padded row.
#pragma once

#include <cstdint>

#include "examples/serve/hash.h"
#include "interop/device/kernel_function.h"

namespace cgtree::serve {

// Threads per block of the CUDA kernels with one block per row, or per row and head.
inline constexpr int kThreads = 128;

// A block of the CUDA product computes a tile of y, 8 rows by 32 columns. Each of its 8 warps sums
// every eighth term.
inline constexpr int kProductRows = 8;
inline constexpr int kProductColumns = 32;
inline constexpr int kProductThreads = kProductRows * kProductColumns;

// The input `batch` of a step: int32 {3, rows}.
struct BatchView {
  const std::int32_t* tokens;
  const std::int32_t* positions;
  const std::int32_t* slots;
};

// A CacheView is one layer of the KV cache, float32 {layers, 2, slots, context, hidden}. The keys
// and values of a slot are rings: position p is stored at p mod context.
struct CacheView {
  float* keys;  // {slots, context, hidden}
  float* values;
  std::int64_t context;
  std::int64_t hidden;

  SERVE_HOST_DEVICE std::int64_t row(std::int64_t slot, std::int64_t position) const {
    return (slot * context + position % context) * hidden;
  }
  // Returns how many positions hold something after `position` was written.
  SERVE_HOST_DEVICE std::int64_t window(std::int64_t position) const {
    return position + 1 < context ? position + 1 : context;
  }
};

// y[r] = x[r] / rms(x[r]) * gain
struct NormArguments {
  const float* x;
  const float* gain;
  float* y;
  std::int64_t rows;
  std::int64_t width;
};
inline constexpr float kNormEpsilon = 1e-5f;

// out[r] = for each head: softmax(q . k / sqrt(head_size)) v over the window; 0 where padded.
struct AttentionArguments {
  const float* qkv;  // {rows, 3 * hidden}
  float* out;        // {rows, hidden}
  BatchView batch;
  CacheView cache;
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t head_size;
  float scale;
};

// next[r] = the first index of the largest logit
struct ArgmaxArguments {
  const float* logits;
  std::int32_t* next;
  std::int64_t rows;
  std::int64_t width;
};

// y {rows, columns} = x {rows, depth} w {depth, columns}, added to y if `accumulate`.
struct ProductArguments {
  const float* x;
  const float* w;
  float* y;
  std::int64_t rows;
  std::int64_t depth;
  std::int64_t columns;
  bool accumulate;
};

// The bodies on the host device: plain loops over the whole grid.
void rms_norm_on_host(const LaunchDims&, NormArguments a);
void attend_on_host(const LaunchDims&, AttentionArguments a);
void argmax_on_host(const LaunchDims&, ArgmaxArguments a);
void multiply_on_host(const LaunchDims&, ProductArguments a);

}  // namespace cgtree::serve
