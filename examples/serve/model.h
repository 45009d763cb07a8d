// Model: a GPT-style transformer with seeded random weights, and its two steps.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/serve/model_sizes.h"
#include "interop/tensor/tensor.h"

namespace cgtree::serve {

// Used by one thread at a time.
class Model {
 public:
  // Throws OutOfMemory, DeviceError.
  Model(const ModelSizes& sizes, std::uint64_t seed, Device device);

  const ModelSizes& sizes() const noexcept { return sizes_; }
  Device device() const noexcept { return device_; }

  // float32 {layers, 2, slots, context, hidden}: keys and values of every slot. Not set: a request
  // reads only what it wrote.
  Tensor make_kv_cache() const;

  // The step functions; they launch on current_stream() and allocate with empty().
  //
  // Feeds one token per row and answers the next, int32 {rows}. `batch`: int32 {3, rows}: token,
  // position, slot; slot -1 pads the batch and touches nothing.
  Tensor decode(const Tensor& batch, const Tensor& kv_cache) const;
  // Feeds whole prompts and answers the first token behind each, int32 {prompts}; the same tokens
  // as decode() with one after the other. `tokens`: int32 {prompts, length}, -1 behind the end of a
  // shorter prompt; `slots`: int32 {prompts}. Requires length <= context. A prompt of -1 alone pads
  // the batch and touches nothing.
  Tensor prefill(const Tensor& tokens, const Tensor& slots, const Tensor& kv_cache) const;

 private:
  struct Layer {
    Tensor attention_norm;  // {hidden}
    Tensor qkv;             // {hidden, 3 * hidden}
    Tensor projection;      // {hidden, hidden}
    Tensor mlp_norm;        // {hidden}
    Tensor up;              // {hidden, 4 * hidden}
    Tensor down;            // {4 * hidden, hidden}
  };

  // What the layers make of the rows: {rows, hidden}.
  Tensor run_layers(const Tensor& batch, const Tensor& kv_cache) const;
  // int32 {rows}
  Tensor choose_next(const Tensor& x) const;
  // Both add their result to `x` {rows, hidden}.
  void add_attention(const Tensor& batch, const Tensor& kv_cache, std::int64_t layer,
                     const Tensor& x) const;
  void add_mlp(const Layer& layer, const Tensor& x) const;
  Tensor normalize(const Tensor& x, const Tensor& gain) const;

  ModelSizes sizes_;
  Device device_;
  Tensor token_table_;     // {vocabulary, hidden}
  Tensor position_table_;  // {context, hidden}
  std::vector<Layer> layers_;
  Tensor final_norm_;  // {hidden}
  Tensor head_;        // {hidden, vocabulary}
};

}  // namespace cgtree::serve
