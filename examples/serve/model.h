// Model: a GPT-style transformer with seeded random weights, and its decode step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "examples/serve/matmul.h"
#include "examples/serve/model_sizes.h"
#include "interop/tensor.h"

namespace cgtree::serve {

// Used by one thread at a time.
class Model {
 public:
  // Throws OutOfMemory, DeviceError; InvalidArgument where cuBLAS cannot be loaded.
  Model(const ModelSizes& sizes, std::uint64_t seed, Device device);

  const ModelSizes& sizes() const noexcept { return sizes_; }
  Device device() const noexcept { return device_; }

  // float32 {layers, 2, slots, context, hidden}: keys and values of every slot. Not set: a request
  // reads only what it wrote.
  Tensor make_kv_cache() const;

  // The step function: feeds one token per row and answers the next, int32 {rows}. `batch`: int32
  // {3, rows}: token, position, slot; slot -1 pads the batch and touches nothing.
  // Launches on current_stream(), allocates with empty().
  Tensor decode(const Tensor& batch, const Tensor& kv_cache) const;

 private:
  struct Layer {
    Tensor attention_norm;  // {hidden}
    Tensor qkv;             // {hidden, 3 * hidden}
    Tensor projection;      // {hidden, hidden}
    Tensor mlp_norm;        // {hidden}
    Tensor up;              // {hidden, 4 * hidden}
    Tensor down;            // {4 * hidden, hidden}
  };

  // Both add their result to `x` {rows, hidden}.
  void add_attention(const Tensor& batch, const Tensor& kv_cache, std::int64_t layer,
                     const Tensor& x) const;
  void add_mlp(const Layer& layer, const Tensor& x) const;
  Tensor normalize(const Tensor& x, const Tensor& gain) const;

  ModelSizes sizes_;
  Device device_;
  std::unique_ptr<MatrixProduct> product_;
  Tensor token_table_;     // {vocabulary, hidden}
  Tensor position_table_;  // {context, hidden}
  std::vector<Layer> layers_;
  Tensor final_norm_;  // {hidden}
  Tensor head_;        // {hidden, vocabulary}
};

}  // namespace cgtree::serve
