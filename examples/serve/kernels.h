// The small kernels of a decode step, each launched on a stream of either device.
//
// Throws DeviceError if a launch is refused. Requires contiguous tensors of the types and shapes
// named.
#pragma once

#include <cstdint>

#include "interop/stream.h"
#include "interop/tensor.h"

namespace cgtree::serve {

// y: float32, uniform in [center - spread, center + spread), from `seed` alone.
void fill_uniform(StreamRef stream, const Tensor& y, std::uint64_t seed, float center,
                  float spread);

// x {rows, hidden} = token_table[token] + position_table[position mod context], for each row of
// `batch`, int32 {3, rows}: token, position, slot (-1: padded).
void embed(StreamRef stream, const Tensor& batch, const Tensor& token_table,
           const Tensor& position_table, const Tensor& x);

// y = x / rms(x) * gain, row by row.
void rms_norm(StreamRef stream, const Tensor& x, const Tensor& gain, const Tensor& y);

// Writes the keys and values of `qkv` {rows, 3 * hidden} into `kv_cache`, float32 {layers, 2,
// slots, context, hidden}. Padded rows write nothing.
void write_cache(StreamRef stream, const Tensor& batch, const Tensor& qkv, const Tensor& kv_cache,
                 std::int64_t layer);

// out {rows, hidden} = attention of the queries in `qkv` over the window of each row's slot.
void attend(StreamRef stream, const Tensor& batch, const Tensor& qkv, const Tensor& kv_cache,
            std::int64_t layer, std::int64_t heads, const Tensor& out);

// x = gelu(x), in place; the tanh form.
void gelu(StreamRef stream, const Tensor& x);

// next {rows}: int32, the first index of the largest of logits {rows, vocabulary}.
void argmax(StreamRef stream, const Tensor& logits, const Tensor& next);

}  // namespace cgtree::serve
