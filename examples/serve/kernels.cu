// The small kernels, and the launches of all. Without CUDA a C++ compiler compiles this file too.
#include "examples/serve/kernels.h"

#include <cmath>

#include "examples/serve/kernel_arguments.h"
#include "interop/device/kernel.h"

#ifdef __CUDACC__
#include "examples/serve/cuda_kernels.cuh"
#define SERVE_CUDA_FUNCTION(function) reinterpret_cast<const void*>(&function)
#else
#define SERVE_CUDA_FUNCTION(function) nullptr
#endif

namespace cgtree::serve {
namespace {

struct FillUniform {
  float* y;
  std::uint64_t seed;
  float center;
  float spread;

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::uint64_t hash = mix(seed + static_cast<std::uint64_t>(i));
    y[i] = center + spread * (2.0f * unit_interval(hash) - 1.0f);
  }
};

struct Embed {
  BatchView batch;
  const float* tokens;
  const float* positions;
  float* x;
  std::int64_t context;
  std::int64_t hidden;

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = i / hidden;
    const std::int64_t column = i % hidden;
    if (batch.slots[row] < 0) {
      x[i] = 0;
      return;
    }
    const std::int64_t token = batch.tokens[row];
    const std::int64_t position = batch.positions[row] % context;
    x[i] = tokens[token * hidden + column] + positions[position * hidden + column];
  }
};

struct WriteCache {
  BatchView batch;
  const float* qkv;
  CacheView cache;

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = i / cache.hidden;
    const std::int64_t column = i % cache.hidden;
    if (batch.slots[row] < 0) return;
    const std::int64_t to = cache.row(batch.slots[row], batch.positions[row]) + column;
    const float* const from = qkv + row * 3 * cache.hidden + column;
    cache.keys[to] = from[cache.hidden];
    cache.values[to] = from[2 * cache.hidden];
  }
};

struct Gelu {
  float* x;

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const float v = x[i];
    // sqrt(2 / pi). Source: Hendrycks and Gimpel, 2016.
    x[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
  }
};

struct LayOutPrompts {
  const std::int32_t* tokens;
  const std::int32_t* slots;
  std::int32_t* batch;
  std::int64_t rows;
  std::int64_t length;

  CGTREE_HOST_DEVICE void operator()(std::int64_t row) const {
    batch[row] = tokens[row];
    batch[rows + row] = static_cast<std::int32_t>(row % length);
    batch[2 * rows + row] = tokens[row] < 0 ? -1 : slots[row / length];
  }
};

struct TakeLast {
  const std::int32_t* tokens;
  const float* x;
  float* last;
  std::int64_t length;
  std::int64_t hidden;

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t first = i / hidden * length;
    std::int64_t row = first + length - 1;
    while (row > first && tokens[row] < 0)
      --row;
    last[i] = x[row * hidden + i % hidden];
  }
};

BatchView view_batch(const Tensor& batch) {
  const std::int64_t rows = batch.dim(1);
  const auto* const first = batch.data<std::int32_t>();
  return {first, first + rows, first + 2 * rows};
}

CacheView view_cache(const Tensor& kv_cache, std::int64_t layer) {
  const std::int64_t context = kv_cache.dim(3);
  const std::int64_t hidden = kv_cache.dim(4);
  const std::int64_t half = kv_cache.dim(2) * context * hidden;
  float* const keys = kv_cache.data<float>() + 2 * layer * half;
  return {keys, keys + half, context, hidden};
}

LaunchDims blocks(std::int64_t x, std::int64_t y = 1) {
  return {.grid = {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y)},
          .block = {kThreads}};
}

}  // namespace

void fill_uniform(StreamRef stream, const Tensor& y, std::uint64_t seed, float center,
                  float spread) {
  parallel_for(stream, y.elements(), FillUniform{y.data<float>(), mix(seed), center, spread});
}

void embed(StreamRef stream, const Tensor& batch, const Tensor& token_table,
           const Tensor& position_table, const Tensor& x) {
  parallel_for(stream, x.elements(),
               Embed{view_batch(batch), token_table.data<float>(), position_table.data<float>(),
                     x.data<float>(), position_table.dim(0), x.dim(1)});
}

void rms_norm(StreamRef stream, const Tensor& x, const Tensor& gain, const Tensor& y) {
  static const auto kernel =
      make_kernel<rms_norm_on_host>("rms_norm", SERVE_CUDA_FUNCTION(rms_norm_on_cuda));
  launch(stream, kernel, blocks(x.dim(0)),
         NormArguments{x.data<float>(), gain.data<float>(), y.data<float>(), x.dim(0), x.dim(1)});
}

void write_cache(StreamRef stream, const Tensor& batch, const Tensor& qkv, const Tensor& kv_cache,
                 std::int64_t layer) {
  const CacheView cache = view_cache(kv_cache, layer);
  parallel_for(stream, batch.dim(1) * cache.hidden,
               WriteCache{view_batch(batch), qkv.data<float>(), cache});
}

void attend(StreamRef stream, const Tensor& batch, const Tensor& qkv, const Tensor& kv_cache,
            std::int64_t layer, std::int64_t heads, const Tensor& out) {
  static const auto kernel =
      make_kernel<attend_on_host>("attend", SERVE_CUDA_FUNCTION(attend_on_cuda));
  const CacheView cache = view_cache(kv_cache, layer);
  const std::int64_t head_size = cache.hidden / heads;
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_size));
  launch(stream, kernel, blocks(batch.dim(1), heads),
         AttentionArguments{qkv.data<float>(), out.data<float>(), view_batch(batch), cache,
                            batch.dim(1), heads, head_size, scale});
}

void multiply(StreamRef stream, const Tensor& x, const Tensor& w, const Tensor& y,
              bool accumulate) {
  static const auto kernel =
      make_kernel<multiply_on_host>("multiply", SERVE_CUDA_FUNCTION(multiply_on_cuda));
  const std::int64_t rows = x.dim(0), columns = w.dim(1);
  const auto tiles = [](std::int64_t count, int tile) {
    return static_cast<std::uint32_t>((count + tile - 1) / tile);
  };
  launch(stream, kernel,
         {.grid = {tiles(rows, kProductRows), tiles(columns, kProductColumns)},
          .block = {kProductThreads}},
         ProductArguments{x.data<float>(), w.data<float>(), y.data<float>(), rows, w.dim(0),
                          columns, accumulate});
}

void gelu(StreamRef stream, const Tensor& x) {
  parallel_for(stream, x.elements(), Gelu{x.data<float>()});
}

void argmax(StreamRef stream, const Tensor& logits, const Tensor& next) {
  static const auto kernel =
      make_kernel<argmax_on_host>("argmax", SERVE_CUDA_FUNCTION(argmax_on_cuda));
  launch(stream, kernel, blocks(logits.dim(0)),
         ArgmaxArguments{logits.data<float>(), next.data<std::int32_t>(), logits.dim(0),
                         logits.dim(1)});
}

void lay_out_prompts(StreamRef stream, const Tensor& tokens, const Tensor& slots,
                     const Tensor& batch) {
  parallel_for(stream, tokens.elements(),
               LayOutPrompts{tokens.data<std::int32_t>(), slots.data<std::int32_t>(),
                             batch.data<std::int32_t>(), tokens.elements(), tokens.dim(1)});
}

void take_last(StreamRef stream, const Tensor& tokens, const Tensor& x, const Tensor& last) {
  parallel_for(stream, last.elements(),
               TakeLast{tokens.data<std::int32_t>(), x.data<float>(), last.data<float>(),
                        tokens.dim(1), last.dim(1)});
}

}  // namespace cgtree::serve
