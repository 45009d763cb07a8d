// The kernels of a step, each launched on a stream of either device.
//
// A row's result depends on that row alone, to the bit, however many rows there are: every sum has
// one order. So padding a batch, and feeding a prompt at once, change no token.
//
// Throws DeviceError if a launch is refused. Requires contiguous tensors of the types and shapes
// named.
#pragma once

#include <cstdint>

#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree::serve {

// y: float32, uniform in [center - spread, center + spread), from `seed` alone.
void fill_uniform(StreamRef stream, const Tensor& y, std::uint64_t seed, float center,
                  float spread);

// x {rows, hidden} = token_table[token] + position_table[position mod context], for each row of
// `batch`, int32 {3, rows}: token, position, slot. 0 where the slot is -1: a padded row.
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

// y {rows, columns} = x {rows, depth} w {depth, columns}, added to y if `accumulate`.
void multiply(StreamRef stream, const Tensor& x, const Tensor& w, const Tensor& y, bool accumulate);

// x = gelu(x), in place; the tanh form.
void gelu(StreamRef stream, const Tensor& x);

// next {rows}: int32, the first index of the largest of logits {rows, vocabulary}.
void argmax(StreamRef stream, const Tensor& logits, const Tensor& next);

// batch {3, prompts * length}: a row for each token of `tokens`, int32 {prompts, length}, at
// positions 0, 1, ... of its prompt's slot in `slots` {prompts}; rows without a token (-1) are
// padded.
void lay_out_prompts(StreamRef stream, const Tensor& tokens, const Tensor& slots,
                     const Tensor& batch);

// last {prompts, hidden} = the row of x {prompts * length, hidden} of each prompt's last token; of
// its first place where a prompt has none.
void take_last(StreamRef stream, const Tensor& tokens, const Tensor& x, const Tensor& last);

}  // namespace cgtree::serve
