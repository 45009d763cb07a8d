// The small kernels, and the launches of all. Without CUDA a C++ compiler compiles this file too.
#include "examples/serve/kernels.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "examples/serve/kernel_arguments.h"
#include "interop/device/kernel.h"
#include "interop/tensor/empty.h"

#ifdef __CUDACC__
#include "examples/serve/attention.cuh"
#include "examples/serve/cuda_kernels.cuh"
#define SERVE_CUDA_FUNCTION(...) reinterpret_cast<const void*>(&__VA_ARGS__)
#define SERVE_CUDA_VALUE(...) (__VA_ARGS__)
#else
#define SERVE_CUDA_FUNCTION(...) nullptr
#define SERVE_CUDA_VALUE(...) nullptr
#endif

namespace cgtree::serve {
namespace {

template <typename T>
T* data(const Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data()) : nullptr;
}

BatchView view_batch(const Tensor& batch) {
  return {batch.data<std::int32_t>(), batch.dim(1)};
}

template <typename T>
CacheView<T> view_cache(const Tensor& kv_cache, std::int64_t layer) {
  const std::int64_t half = kv_cache.elements() / (2 * kv_cache.dim(0));
  T* const keys = data<T>(kv_cache) + 2 * layer * half;
  return {keys, keys + half, kv_cache.dim(3), kv_cache.dim(5)};
}

template <typename T>
struct FillUniform {
  T* y;
  Patch patch;
  std::int64_t columns;
  float center;
  float spread;

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = patch.first_row + i / columns;
    const std::int64_t place = row * patch.columns + patch.first_column + i % columns;
    const std::uint64_t hash = mix(patch.seed + static_cast<std::uint64_t>(place));
    y[i] = from_float<T>(center + spread * (static_cast<float>(hash >> 40) * 0x1p-23f - 1.0f));
  }
};

// Elements are handled eight at a time from here on; `width` is that of a row in eights.
template <typename T>
struct Embed {
  BatchView batch;
  const T* table;
  T* x;
  std::uint32_t width;

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::uint32_t row = static_cast<std::uint32_t>(i) / width;
    const std::uint32_t column = static_cast<std::uint32_t>(i) % width;
    const bool is_padding = batch.position(row) < 0;
    const std::int64_t from = std::int64_t{is_padding ? 0 : batch.token(row)} * width + column;
    store(x + 8 * i, is_padding ? Eight<float>{} : load(table + 8 * from));
  }
};

template <typename T>
struct RopeAndCache {
  BatchView batch;
  const float* angles;
  CacheView<T> cache;
  T* qkv;
  std::uint32_t heads;
  std::uint32_t width;  // of half a head, in eights

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const auto kv_heads = static_cast<std::uint32_t>(cache.kv_heads);
    const std::uint32_t pair = static_cast<std::uint32_t>(i) / width;
    const std::uint32_t row = pair / (heads + 2 * kv_heads);
    const std::uint32_t head = pair % (heads + 2 * kv_heads);
    const std::int64_t part = 8 * (i % width), half = 8 * width;
    const std::int32_t position = batch.position(row);
    if (position < 0) return;
    T* const from = qkv + pair * 2 * half + part;
    Eight<float> x = load(from), y = load(from + half);
    if (head < heads + kv_heads) {
      const Eight<float> cosine = load(angles + position * 2 * half + part);
      const Eight<float> sine = load(angles + position * 2 * half + half + part);
      for (int j = 0; j < 8; ++j) {
        const float turned = x.v[j] * cosine.v[j] - y.v[j] * sine.v[j];
        y.v[j] = y.v[j] * cosine.v[j] + x.v[j] * sine.v[j];
        x.v[j] = turned;
      }
    }
    T* to = from;
    if (head >= heads) {
      const std::uint32_t kv_head = (head - heads) % kv_heads;
      to = head < heads + kv_heads ? cache.keys : cache.values;
      to += cache.at(batch.blocks(row), kv_head, position) + part;
    }
    store(to, x);
    store(to + half, y);
  }
};

template <typename T>
struct Swiglu {
  const T* x;
  T* out;
  std::uint32_t width;

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = static_cast<std::uint32_t>(i) / width;
    Eight<float> gate = load(x + 8 * (i + row * width));
    const Eight<float> up = load(x + 8 * (i + row * width + width));
    for (int j = 0; j < 8; ++j)
      gate.v[j] = gate.v[j] / (1.0f + expf(-gate.v[j])) * up.v[j];
    store(out + 8 * i, gate);
  }
};

struct LayOutPrompts {
  const std::int32_t* tokens;
  const std::int32_t* tables;
  std::int32_t* batch;
  std::int64_t length;
  std::int64_t width;

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = i / width, column = i % width;
    if (column >= 2) {
      batch[i] = tables[row / length * (width - 2) + column - 2];
    } else {
      const bool is_padding = tokens[row] < 0;
      batch[i] = column == 0 || is_padding ? tokens[row] : static_cast<std::int32_t>(row % length);
    }
  }
};

template <typename T>
struct TakeLast {
  BatchView batch;
  const T* x;
  T* last;
  std::int64_t length;
  std::int64_t width;

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    // Padding comes last, so that the row before it can be found by halving.
    std::int64_t row = i / width * length, end = row + length;
    while (end - row > 1) {
      const std::int64_t middle = row + (end - row) / 2;
      (batch.position(middle) < 0 ? end : row) = middle;
    }
    store(last + 8 * i, load(x + 8 * (row * width + i % width)));
  }
};

std::uint32_t eights(std::int64_t elements) {
  return static_cast<std::uint32_t>(elements / 8);
}

// Columns of a row of logits for which choose() has a block.
std::int64_t chunk_of(std::int64_t rows) {
  return rows <= 16 ? 1024 : 8192;
}

// What a large GPU runs at once, 132 multiprocessors with four blocks each, but not less than 32
// positions for a block. The context, not a row's length, decides: that differs between replays.
std::int32_t splits_of(Device device, std::int64_t blocks, std::int64_t context) {
  if (device.type == DeviceType::kHost) return 1;
  const std::int64_t most = std::clamp<std::int64_t>(context / 32, 1, 64);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(4 * 132 / blocks, 1, most));
}

std::uint32_t grid(std::int64_t size) {
  return static_cast<std::uint32_t>(size);
}

}  // namespace

void fill_uniform(StreamRef stream, const Tensor& y, const Patch& patch, float center,
                  float spread) {
  Patch hashed = patch;
  hashed.seed = mix(patch.seed);
  with_type(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, y.elements(),
                 FillUniform<T>{data<T>(y), hashed, y.dim(1), center, spread});
  });
}

void embed(StreamRef stream, const Tensor& batch, const Tensor& table, const Tensor& x) {
  with_type(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, x.elements() / 8,
                 Embed<T>{view_batch(batch), data<T>(table), data<T>(x), eights(x.dim(1))});
  });
}

void add_norm(StreamRef stream, const Tensor& x, const Tensor& delta, const Tensor& gain,
              float epsilon, const Tensor& y) {
  with_type(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    static const auto kernel =
        make_kernel<&add_norm_on_host<T>>("add_norm", SERVE_CUDA_FUNCTION(add_norm_on_cuda<T>));
    launch(stream, kernel, {.grid = {grid(x.dim(0))}, .block = {(eights(x.dim(1)) + 31) / 32 * 32}},
           NormArguments<T>{data<T>(x), data<T>(delta), data<T>(gain), data<T>(y), x.dim(0),
                            x.dim(1), epsilon});
  });
}

void rope_and_cache(StreamRef stream, const Tensor& batch, const Tensor& angles,
                    const Tensor& kv_cache, std::int64_t layer, const Tensor& qkv) {
  with_type(qkv.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const CacheView<T> cache = view_cache<T>(kv_cache, layer);
    const std::int64_t heads = qkv.dim(1) / cache.head_size - 2 * cache.kv_heads;
    parallel_for(stream, qkv.elements() / 16,
                 RopeAndCache<T>{view_batch(batch), data<float>(angles), cache, data<T>(qkv),
                                 grid(heads), eights(cache.head_size / 2)});
  });
}

void attend(StreamRef stream, const Tensor& batch, const Tensor& qkv, const Tensor& kv_cache,
            std::int64_t layer, const Tensor& out) {
  with_type(qkv.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const CacheView<T> cache = view_cache<T>(kv_cache, layer);
    const std::int64_t rows = batch.dim(0), size = cache.head_size, heads = out.dim(1) / size;
    const std::int64_t group = heads / cache.kv_heads;
    const std::int64_t shared = group % 4 == 0 ? 4 : group % 2 == 0 ? 2 : 1;
    const std::int32_t splits =
        splits_of(stream.device(), rows * heads / shared, (batch.dim(1) - 2) * kBlockSize);
    AttentionArguments<T> a{data<T>(qkv),
                            data<T>(out),
                            nullptr,
                            view_batch(batch),
                            cache,
                            rows,
                            heads,
                            splits,
                            1.0f / std::sqrt(static_cast<float>(size))};
    Tensor partials;
    if (splits > 1)
      partials = empty({rows, heads, splits, size + 2}, DType::kFloat32, stream.device());
    a.partials = data<float>(partials);
    launch(stream,
           make_kernel<&attend_on_host<T>>("attend", SERVE_CUDA_VALUE(attend_for<T>(size, group))),
           {.grid = {grid(rows), grid(heads / shared), grid(splits)}, .block = {128}}, a);
    if (splits == 1) return;
    launch(stream,
           make_kernel<&attend_on_host<T>>("merge_splits",
                                           SERVE_CUDA_FUNCTION(merge_splits_on_cuda<T>)),
           {.grid = {grid(rows * heads)}, .block = {grid(size)}}, a);
  });
}

void swiglu(StreamRef stream, const Tensor& x, const Tensor& out) {
  with_type(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, out.elements() / 8,
                 Swiglu<T>{data<T>(x), data<T>(out), eights(out.dim(1))});
  });
}

void lay_out_prompts(StreamRef stream, const Tensor& tokens, const Tensor& tables,
                     const Tensor& batch) {
  parallel_for(stream, batch.elements(),
               LayOutPrompts{data<std::int32_t>(tokens), data<std::int32_t>(tables),
                             data<std::int32_t>(batch), tokens.dim(1), batch.dim(1)});
}

void take_last(StreamRef stream, const Tensor& batch, const Tensor& x, const Tensor& last) {
  with_type(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, last.elements() / 8,
                 TakeLast<T>{view_batch(batch), data<T>(x), data<T>(last), x.dim(0) / last.dim(0),
                             last.dim(1) / 8});
  });
}

void find_top_k(StreamRef stream, const Tensor& logits, std::int64_t k, const Tensor& thresholds) {
  static const auto kernel =
      make_kernel<&find_top_k_on_host>("find_top_k", SERVE_CUDA_FUNCTION(find_top_k_on_cuda));
  launch(stream, kernel, {.grid = {grid(logits.dim(1))}, .block = {1024}},
         TopKArguments{data<float>(logits), data<float>(thresholds), logits.dim(0), logits.dim(1),
                       logits.dim(2), k});
}

std::int64_t chunks(std::int64_t rows, std::int64_t columns) {
  return (columns + chunk_of(rows) - 1) / chunk_of(rows);
}

void choose(StreamRef stream, const Tensor& logits, const Sampling& sampling,
            const PhiloxRange& noise, const Tensor& thresholds, std::int64_t first_column,
            std::int64_t vocabulary, const Tensor& keys) {
  static const auto kernel =
      make_kernel<&choose_on_host>("choose", SERVE_CUDA_FUNCTION(choose_on_cuda));
  const std::int64_t rows = logits.dim(0), columns = logits.dim(1);
  const float inverse = sampling.temperature > 0 ? 1 / sampling.temperature : 0;
  launch(stream, kernel, {.grid = {grid(chunks(rows, columns)), grid(rows)}, .block = {256}},
         ChoiceArguments{data<float>(logits), data<float>(thresholds), data<std::uint64_t>(keys),
                         noise, rows, columns, first_column, vocabulary, chunk_of(rows), inverse});
}

void finish_choice(StreamRef stream, const Tensor& keys, const Tensor& next) {
  static const auto kernel = make_kernel<&finish_choice_on_host>(
      "finish_choice", SERVE_CUDA_FUNCTION(finish_choice_on_cuda));
  launch(stream, kernel, {.grid = {grid(next.dim(0))}, .block = {256}},
         FinishArguments{data<std::uint64_t>(keys), data<std::int32_t>(next),
                         keys.elements() / next.dim(0), next.dim(0)});
}

}  // namespace cgtree::serve
