// The kernels of a step. Each function enqueues on a stream of either device.
//
// Tensors are contiguous; x, weights and the cache have the number_type() of the device. A step's
// `batch` is int32 {rows, 2 + blocks}: a row's token, its position in its request, and the
// request's blocks of the cache; block i holds positions 16 i to 16 i + 15. A row whose position is
// -1 is padding: it reads and writes no cache.
//
// A row's result depends on that row and on the number of rows, to the bit: sums have one order for
// each number of rows. Throws DeviceError if a launch fails.
#pragma once

#include <cstdint>
#include <memory>

#include "interop/device/stream.h"
#include "interop/random/philox.h"
#include "interop/tensor/tensor.h"

namespace cgtree::serve {

inline constexpr std::int32_t kBlockSize = 16;  // positions in a block of the cache

// The patch of a made-up matrix to make: element (r, c) of the tensor is element (r + first_row, c
// + first_column) of the matrix, so that shards of any size are parts of the same matrix.
struct Patch {
  std::uint64_t seed = 0;
  std::int64_t first_row = 0;
  std::int64_t first_column = 0;
  std::int64_t columns = 0;  // of the whole matrix
};
// y {rows, columns} = values in [center - spread, center + spread).
void fill_uniform(StreamRef stream, const Tensor& y, const Patch& patch, float center,
                  float spread);

// x {rows, hidden} = table[token]; 0 for padding.
void embed(StreamRef stream, const Tensor& batch, const Tensor& table, const Tensor& x);

// x += delta, unless that is undefined; y = x / rms(x) * gain, row by row.
void add_norm(StreamRef stream, const Tensor& x, const Tensor& delta, const Tensor& gain,
              float epsilon, const Tensor& y);

// Rotates the queries and keys of `qkv` {rows, (heads + 2 kv_heads) * head_size} by their position,
// the queries in place, and writes the keys and values into layer `layer` of `kv_cache` {layers, 2,
// blocks, kv_heads, 16, head_size}. `angles` {positions, head_size} float32 has the cosines of each
// position, then the sines.
void rope_and_cache(StreamRef stream, const Tensor& batch, const Tensor& angles,
                    const Tensor& kv_cache, std::int64_t layer, const Tensor& qkv);

// out {rows, heads * head_size} = attention of each row's queries over all positions up to its own;
// 0 for padding. Allocates float32 partial results with empty() if few rows must fill a GPU.
void attend(StreamRef stream, const Tensor& batch, const Tensor& qkv, const Tensor& kv_cache,
            std::int64_t layer, const Tensor& out);

// out {rows, n} = silu(x[:, :n]) * x[:, n:]
void swiglu(StreamRef stream, const Tensor& x, const Tensor& out);

// batch {prompts * length, 2 + blocks} gets a row for each of `tokens` int32 {prompts, length}, in
// which -1 is padding, with the blocks of its prompt, `tables` int32 {prompts, blocks}.
void lay_out_prompts(StreamRef stream, const Tensor& tokens, const Tensor& tables,
                     const Tensor& batch);
// last {prompts, hidden} = the row of x {prompts * length, hidden} of each prompt's last token, or
// the prompt's first row if it has no token.
void take_last(StreamRef stream, const Tensor& batch, const Tensor& x, const Tensor& last);

// keys int64 {chunks(), rows} gets the best column of each chunk of a row of `logits` float32
// {rows, columns}, which begin at column first_column of `vocabulary`: the column of the largest
// logit, the first among equal ones. With a temperature the column is drawn: that of the largest
// logit / temperature + Gumbel noise, which is distributed as the softmax. It uses (rows *
// vocabulary + 3) / 4 blocks of `noise`.
void choose(StreamRef stream, const Tensor& logits, float temperature, const PhiloxRange& noise,
            std::int64_t first_column, std::int64_t vocabulary, const Tensor& keys);
std::int64_t chunks(std::int64_t rows, std::int64_t columns);
// next int32 {rows} = the best column of all chunks.
void finish_choice(StreamRef stream, const Tensor& keys, const Tensor& next);

// The next three are for rounds.h, where the rows of a batch have `left` int32 {rows}: the number
// of tokens that they still generate. `width` is the number of proposals for a row plus one.
//
// draft {rows, 2 + blocks} = batch. verify {rows * width, 2 + blocks} gets, for each row, that row,
// followed by its proposals at the next positions, whose tokens are not known yet; if a row has
// fewer tokens left, the others are padding. *proposed int32 = 0.
void lay_out_proposals(StreamRef stream, const Tensor& batch, const Tensor& left,
                       const Tensor& draft, const Tensor& verify, const Tensor& proposed);
// The draft model's choice, next int32 {rows}, becomes the proposal with the number *proposed in
// verify, and the next input of draft; a row without that proposal becomes padding there. *proposed
// += 1.
void propose(StreamRef stream, const Tensor& next, const Tensor& draft, const Tensor& verify,
             const Tensor& proposed);
// Accepts tokens among those chosen, int32 {rows * width}, for the rows of verify, which is `batch`
// itself if width is 1: for each row the first token, and each token after a proposal that equals
// the token before it. They go to tokens int32 {rows, width}, followed by -1. The batch continues
// after them; a row without tokens left becomes padding. *goes_on int32 = 1 if any row has tokens
// left, or 0.
void accept(StreamRef stream, const Tensor& chosen, const Tensor& verify, const Tensor& batch,
            const Tensor& left, const Tensor& tokens, const Tensor& goes_on);

// A Products keeps cuBLASLt's data for each shape. The library is loaded at run time, so that a
// program built with CUDA starts without it. Thread safety: any thread.
class Products {
 public:
  // Throws InvalidArgument if the library is not found; DeviceError.
  explicit Products(Device device);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Enqueues y {rows, columns} = x {rows, depth} w {columns, depth}^T with float32 sums. x and w
  // have the number_type() of the device; y has the same or is float32. The algorithm depends only
  // on shapes and types. Its workspace is a Workspace: inside a step, memory of the context's pool.
  // Requires: depth is a multiple of 8.
  void multiply(StreamRef stream, const Tensor& x, const Tensor& w, const Tensor& y) const;

 private:
  struct Cublas;
  std::unique_ptr<Cublas> cublas_;  // null on the host device
};

}  // namespace cgtree::serve
