// The arguments of the larger kernels, and their bodies on the host device. T is float or BFloat16.
#pragma once

#include <cstdint>

#include "examples/serve/kernels.h"
#include "examples/serve/numbers.h"
#include "interop/device/kernel_function.h"
#include "interop/random/philox.h"

namespace cgtree::serve {

// The input of a step; row r is first[r * stride] and on.
struct BatchView {
  const std::int32_t* first;
  std::int64_t stride;

  CGTREE_HOST_DEVICE std::int32_t token(std::int64_t row) const { return first[row * stride]; }
  CGTREE_HOST_DEVICE std::int32_t position(std::int64_t row) const {
    return first[row * stride + 1];
  }
  CGTREE_HOST_DEVICE const std::int32_t* blocks(std::int64_t row) const {
    return first + row * stride + 2;
  }
};

// One layer of the KV cache.
template <typename T>
struct CacheView {
  T* keys;  // {blocks, kv_heads, kBlockSize, head_size}
  T* values;
  std::int64_t kv_heads;
  std::int64_t head_size;

  // Returns where a head's key or value at `position` begins.
  CGTREE_HOST_DEVICE std::int64_t at(const std::int32_t* blocks, std::int64_t head,
                                     std::int32_t position) const {
    const std::int64_t block = blocks[position / kBlockSize];
    return ((block * kv_heads + head) * kBlockSize + position % kBlockSize) * head_size;
  }
};

template <typename T>
struct NormArguments {
  T* x;
  const T* delta;  // may be null
  const T* gain;
  T* y;
  std::int64_t rows;
  std::int64_t width;
  float epsilon;
};

// A row's positions are split into `splits` parts. With more than one, `partials` float {rows,
// heads, splits, head_size + 2} gets of each part the weighted sum of values, the largest score,
// and the sum of weights.
template <typename T>
struct AttentionArguments {
  const T* qkv;
  T* out;
  float* partials;
  BatchView batch;
  CacheView<T> cache;
  std::int64_t rows;
  std::int64_t heads;
  std::int32_t splits;
  float scale;

  CGTREE_HOST_DEVICE std::int64_t qkv_width() const {
    return (heads + 2 * cache.kv_heads) * cache.head_size;
  }
};

struct TopKArguments {
  const float* logits;
  float* thresholds;
  std::int64_t parts;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t k;

  CGTREE_HOST_DEVICE float logit(std::int64_t row, std::int64_t i) const {
    const auto width = static_cast<std::uint32_t>(columns);
    const std::uint32_t part = static_cast<std::uint32_t>(i) / width;
    return logits[(part * rows + row) * columns + static_cast<std::uint32_t>(i) % width];
  }
};

// Returns numbers in the order of the floats.
CGTREE_HOST_DEVICE inline std::uint32_t ordered_bits(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct ChoiceArguments {
  const float* logits;
  const float* thresholds;  // may be null
  std::uint64_t* keys;
  PhiloxRange noise;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t first_column;
  std::int64_t vocabulary;
  std::int64_t chunk;         // columns, a multiple of 4
  float inverse_temperature;  // 0: greedy

  // Returns the best of four columns: the larger the key, the better, and the lower the column.
  CGTREE_HOST_DEVICE std::uint64_t best_of_four(std::int64_t row, std::int64_t column) const {
    struct alignas(16) Four {
      float v[4];
    };
    const Four from = load_aligned<Four>(logits + row * columns + column);
    PhiloxBlock words{};
    if (inverse_temperature > 0) {
      const std::int64_t first = row * vocabulary + first_column + column;
      words = noise.block(static_cast<std::uint64_t>(first) / 4);
    }
    std::uint64_t best = 0;
    for (int i = 0; i < 4; ++i) {
      float value = from.v[i];
      if (thresholds != nullptr && value < thresholds[row]) continue;
      if (inverse_temperature > 0) {
        const float uniform = (static_cast<float>(words.words[i] >> 9) + 0.5f) * 0x1p-23f;
        value = value * inverse_temperature - logf(-logf(uniform));
      }
      const auto index = static_cast<std::uint32_t>(first_column + column + i);
      const std::uint64_t key = static_cast<std::uint64_t>(ordered_bits(value)) << 32 | ~index;
      if (key > best) best = key;
    }
    return best;
  }
};

struct FinishArguments {
  const std::uint64_t* keys;
  std::int32_t* next;
  std::int64_t chunks;
  std::int64_t rows;
};

// y {rows, columns} = x {rows, depth} w {columns, depth}^T
template <typename T, typename Y>
struct ProductArguments {
  const T* x;
  const T* w;
  Y* y;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
};

// The bodies on the host device: plain loops over the whole grid.
template <typename T>
void add_norm_on_host(const LaunchDims&, NormArguments<T> a);
template <typename T>
void attend_on_host(const LaunchDims&, AttentionArguments<T> a);
template <typename T, typename Y>
void multiply_on_host(const LaunchDims&, ProductArguments<T, Y> a);
void find_top_k_on_host(const LaunchDims&, TopKArguments a);
void choose_on_host(const LaunchDims&, ChoiceArguments a);
void finish_choice_on_host(const LaunchDims&, FinishArguments a);

}  // namespace cgtree::serve
