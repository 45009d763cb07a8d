// The kernels of a step. Each function enqueues one kernel on a stream of either device.
//
// A row's result depends on that row alone, to the bit, however many rows there are, because every
// sum has one order. So padding a batch, and feeding a prompt at once, change no token.
//
// Requires: contiguous tensors of the types and shapes named. Throws DeviceError if a launch fails.
#pragma once

#include <cstdint>

#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree::serve {

// Fills y, float32, with values in [center - spread, center + spread) that depend on `seed` alone.
void fill_uniform(StreamRef stream, const Tensor& y, std::uint64_t seed, float center,
                  float spread);

// x {rows, hidden} = token_table[token] + position_table[position mod context] for each row of
// `batch`, int32 {3, rows}: token, position, slot. A padded row, whose slot is -1, becomes 0.
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

// batch {3, prompts * length} gets a row for each token of `tokens`, int32 {prompts, length}: the
// token, its position in the prompt, and the prompt's slot of `slots` {prompts}. A row without a
// token (-1) is padded.
void lay_out_prompts(StreamRef stream, const Tensor& tokens, const Tensor& slots,
                     const Tensor& batch);

// last {prompts, hidden} = the row of x {prompts * length, hidden} of each prompt's last token, or
// the prompt's first row where it has no token.
void take_last(StreamRef stream, const Tensor& tokens, const Tensor& x, const Tensor& last);

}  // namespace cgtree::serve
