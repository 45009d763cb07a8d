// The small kernels. Without CUDA a C++ compiler compiles this file too.
#include "examples/serve/kernels.h"

#include <cmath>

#include "examples/serve/paged_cache.h"
#include "interop/device/kernel.h"

namespace cgtree::serve {
namespace {

// Most of them are loops over groups of eight numbers; a row has `width` groups.

struct FillUniform {
  Numbers y;
  Patch patch;
  std::int64_t width;
  float center;
  float spread;

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = patch.first_row + i / width;
    const std::int64_t first = row * patch.columns + patch.first_column + i % width * 8;
    Eight values;
    for (int j = 0; j < 8; ++j) {
      const std::uint64_t hash = mix(patch.seed + static_cast<std::uint64_t>(first + j));
      values.v[j] = center + spread * (static_cast<float>(hash >> 40) * 0x1p-23f - 1.0f);
    }
    y.store(8 * i, values);
  }
};

struct Embed {
  BatchView batch;
  Numbers table;
  Numbers x;
  std::uint32_t width;

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::uint32_t row = static_cast<std::uint32_t>(i) / width;
    const std::uint32_t column = static_cast<std::uint32_t>(i) % width;
    const bool is_padding = batch.position(row) < 0;
    const std::int64_t from = std::int64_t{is_padding ? 0 : batch.token(row)} * width + column;
    x.store(8 * i, is_padding ? Eight{} : table.load(8 * from));
  }
};

struct RopeAndCache {
  BatchView batch;
  const float* angles;
  CacheView cache;
  Numbers qkv;
  std::uint32_t heads;
  std::uint32_t width;  // of half a head

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const auto kv_heads = static_cast<std::uint32_t>(cache.kv_heads);
    const std::uint32_t pair = static_cast<std::uint32_t>(i) / width;
    const std::uint32_t row = pair / (heads + 2 * kv_heads);
    const std::uint32_t head = pair % (heads + 2 * kv_heads);
    const std::int64_t part = 8 * (i % width), half = 8 * width;
    const std::int32_t position = batch.position(row);
    if (position < 0) return;
    const std::int64_t from = pair * 2 * half + part;
    Eight x = qkv.load(from), y = qkv.load(from + half);
    if (head < heads + kv_heads) {
      const float* const turn = angles + position * 2 * half + part;
      const Eight cosine = load_aligned<Eight>(turn), sine = load_aligned<Eight>(turn + half);
      for (int j = 0; j < 8; ++j) {
        const float turned = x.v[j] * cosine.v[j] - y.v[j] * sine.v[j];
        y.v[j] = y.v[j] * cosine.v[j] + x.v[j] * sine.v[j];
        x.v[j] = turned;
      }
    }
    Numbers to = qkv;
    std::int64_t at = from;
    if (head >= heads) {
      to = head < heads + kv_heads ? cache.keys : cache.values;
      at = cache.at(batch.blocks(row), (head - heads) % kv_heads, position) + part;
    }
    to.store(at, x);
    to.store(at + half, y);
  }
};

struct Swiglu {
  Numbers x;
  Numbers out;
  std::uint32_t width;

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = static_cast<std::uint32_t>(i) / width;
    Eight gate = x.load(8 * (i + row * width));
    const Eight up = x.load(8 * (i + row * width + width));
    for (int j = 0; j < 8; ++j)
      gate.v[j] = gate.v[j] / (1.0f + expf(-gate.v[j])) * up.v[j];
    out.store(8 * i, gate);
  }
};

// Processes single elements.
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

struct TakeLast {
  BatchView batch;
  Numbers x;
  Numbers last;
  std::int64_t length;
  std::int64_t width;

  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    // Padding comes last, so that the row before it can be found by bisection.
    std::int64_t row = i / width * length, end = row + length;
    while (end - row > 1) {
      const std::int64_t middle = row + (end - row) / 2;
      (batch.position(middle) < 0 ? end : row) = middle;
    }
    last.store(8 * i, x.load(8 * (row * width + i % width)));
  }
};

struct AddNorm {
  Numbers x;
  Numbers delta;  // may be null
  Numbers gain;
  Numbers y;
  std::int64_t rows;
  std::int64_t width;  // elements
  float epsilon;
};

void add_norm_on_host(const LaunchDims&, AddNorm a) {
  const float* const gain = a.gain.on_host();
  for (std::int64_t row = 0; row < a.rows; ++row) {
    float* const x = a.x.on_host() + row * a.width;
    float* const y = a.y.on_host() + row * a.width;
    for (std::int64_t i = 0; a.delta.first != nullptr && i < a.width; ++i)
      x[i] += a.delta.on_host()[row * a.width + i];
    const float mean_square = dot_on_host(x, x, a.width) / static_cast<float>(a.width);
    const float factor = 1.0f / std::sqrt(mean_square + a.epsilon);
    for (std::int64_t i = 0; i < a.width; ++i)
      y[i] = x[i] * factor * gain[i];
  }
}

#ifdef __CUDACC__
// Rounds as a store followed by a load would.
__device__ float rounded(float value) {
  return from_bits(to_bits(value));
}

// Grid: {rows}. A thread has eight elements.
__global__ void add_norm_on_cuda(AddNorm a) {
  __shared__ float sums[32];
  const std::int64_t column = threadIdx.x * 8;
  const std::int64_t at = blockIdx.x * a.width + column;
  const bool is_inside = column < a.width;
  Eight x{}, gain{};
  if (is_inside) {
    x = a.x.load(at);
    gain = a.gain.load(column);
    if (a.delta.first != nullptr) {
      const Eight delta = a.delta.load(at);
      for (int i = 0; i < 8; ++i)
        x.v[i] = rounded(x.v[i] + delta.v[i]);
      a.x.store(at, x);
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
    x.v[i] = rounded(x.v[i] * factor) * gain.v[i];
  a.y.store(at, x);
}
#endif

std::uint32_t eights(std::int64_t elements) {
  return static_cast<std::uint32_t>(elements / 8);
}

}  // namespace

void fill_uniform(StreamRef stream, const Tensor& y, const Patch& patch, float center,
                  float spread) {
  Patch hashed = patch;
  hashed.seed = mix(patch.seed);
  parallel_for(stream, y.elements() / 8,
               FillUniform{{y.data()}, hashed, y.dim(1) / 8, center, spread});
}

void embed(StreamRef stream, const Tensor& batch, const Tensor& table, const Tensor& x) {
  parallel_for(stream, x.elements() / 8,
               Embed{BatchView(batch), {table.data()}, {x.data()}, eights(x.dim(1))});
}

void add_norm(StreamRef stream, const Tensor& x, const Tensor& delta, const Tensor& gain,
              float epsilon, const Tensor& y) {
  static const auto kernel =
      make_kernel<&add_norm_on_host>("add_norm", SERVE_CUDA_FUNCTION(add_norm_on_cuda));
  launch(stream, kernel,
         {.grid = {static_cast<std::uint32_t>(x.dim(0))},
          .block = {(eights(x.dim(1)) + 31) / 32 * 32}},
         AddNorm{{x.data()},
                 {delta.defined() ? delta.data() : nullptr},
                 {gain.data()},
                 {y.data()},
                 x.dim(0),
                 x.dim(1),
                 epsilon});
}

void rope_and_cache(StreamRef stream, const Tensor& batch, const Tensor& angles,
                    const Tensor& kv_cache, std::int64_t layer, const Tensor& qkv) {
  const CacheView cache(kv_cache, layer);
  const std::int64_t heads = qkv.dim(1) / cache.head_size - 2 * cache.kv_heads;
  parallel_for(stream, qkv.elements() / 16,
               RopeAndCache{BatchView(batch),
                            angles.data<float>(),
                            cache,
                            {qkv.data()},
                            static_cast<std::uint32_t>(heads),
                            eights(cache.head_size / 2)});
}

void swiglu(StreamRef stream, const Tensor& x, const Tensor& out) {
  parallel_for(stream, out.elements() / 8, Swiglu{{x.data()}, {out.data()}, eights(out.dim(1))});
}

void lay_out_prompts(StreamRef stream, const Tensor& tokens, const Tensor& tables,
                     const Tensor& batch) {
  parallel_for(stream, batch.elements(),
               LayOutPrompts{tokens.data<std::int32_t>(), tables.data<std::int32_t>(),
                             batch.data<std::int32_t>(), tokens.dim(1), batch.dim(1)});
}

void take_last(StreamRef stream, const Tensor& batch, const Tensor& x, const Tensor& last) {
  parallel_for(
      stream, last.elements() / 8,
      TakeLast{
          BatchView(batch), {x.data()}, {last.data()}, x.dim(0) / last.dim(0), last.dim(1) / 8});
}

}  // namespace cgtree::serve
