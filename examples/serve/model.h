// Model: a GPT-style transformer with seeded random weights, and its two step functions.
#pragma once

#include <cstdint>
#include <vector>

#include "interop/tensor/tensor.h"

namespace cgtree::serve {

struct ModelSizes {
  std::int64_t layers = 2;
  std::int64_t hidden = 64;  // a multiple of heads
  std::int64_t heads = 4;
  std::int64_t vocabulary = 256;
  std::int64_t context = 64;  // positions that attention looks back on
  std::int64_t slots = 8;     // requests decoded together
};

// A Model holds the weights and launches the kernels of a step.
// Thread safety: one thread at a time.
class Model {
 public:
  // Throws OutOfMemory or DeviceError.
  Model(const ModelSizes& sizes, std::uint64_t seed, Device device);

  const ModelSizes& sizes() const noexcept { return sizes_; }
  Device device() const noexcept { return device_; }

  // Returns the keys and values of every slot, float32 {layers, 2, slots, context, hidden}. They
  // are not set: a request reads only what it wrote.
  Tensor make_kv_cache() const;

  // The two step functions. They launch on current_stream() and allocate with empty().
  //
  // decode() feeds one token per row and returns the token after it, int32 {rows}. `batch` is int32
  // {3, rows}: token, position, slot. A row whose slot is -1 is padding and touches nothing.
  Tensor decode(const Tensor& batch, const Tensor& kv_cache) const;
  // prefill() feeds whole prompts and returns the first token after each, int32 {prompts}: the
  // tokens that decode() returns when it is fed one after the other. `tokens` is int32 {prompts,
  // length}, with -1 after the end of a shorter prompt; `slots` is int32 {prompts}. A prompt
  // without tokens is padding and touches nothing. Requires: length <= context.
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

  // Returns the rows after all layers, {rows, hidden}.
  Tensor run_layers(const Tensor& batch, const Tensor& kv_cache) const;
  // Returns the most likely token of each row, int32 {rows}.
  Tensor choose_next(const Tensor& x) const;
  // These two add their result to `x` {rows, hidden}.
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
