// The kernels' view of the batch of a step and of the KV cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "examples/serve/kernels.h"
#include "examples/serve/numbers.h"
#include "interop/tensor/tensor.h"

namespace cgtree::serve {

// Row r begins at first[r * stride].
struct BatchView {
  const std::int32_t* first;
  std::int64_t stride;

  explicit BatchView(const Tensor& batch)
      : first(batch.data<std::int32_t>()), stride(batch.dim(1)) {}

  CGTREE_HOST_DEVICE std::int32_t token(std::int64_t row) const { return first[row * stride]; }
  CGTREE_HOST_DEVICE std::int32_t position(std::int64_t row) const {
    return first[row * stride + 1];
  }
  CGTREE_HOST_DEVICE const std::int32_t* blocks(std::int64_t row) const {
    return first + row * stride + 2;
  }
};

// One layer of the cache.
struct CacheView {
  Numbers keys;    // {blocks, kv_heads, kBlockSize, head_size}
  Numbers values;  // the same
  std::int64_t kv_heads;
  std::int64_t head_size;

  CacheView(const Tensor& kv_cache, std::int64_t layer)
      : kv_heads(kv_cache.dim(3)), head_size(kv_cache.dim(5)) {
    const std::size_t half = kv_cache.bytes() / static_cast<std::size_t>(2 * kv_cache.dim(0));
    keys.first =
        static_cast<std::byte*>(kv_cache.data()) + 2 * static_cast<std::size_t>(layer) * half;
    values.first = static_cast<std::byte*>(keys.first) + half;
  }

  // Returns the index at which a head's key or value at `position` begins.
  CGTREE_HOST_DEVICE std::int64_t at(const std::int32_t* blocks, std::int64_t head,
                                     std::int32_t position) const {
    const std::int64_t block = blocks[position / kBlockSize];
    return ((block * kv_heads + head) * kBlockSize + position % kBlockSize) * head_size;
  }
};

}  // namespace cgtree::serve
