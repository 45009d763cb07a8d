// Model: one rank's share of a model of Llama's architecture, and its two step functions.
#pragma once

#include <cstdint>

#include "examples/serve/config.h"
#include "examples/serve/kernels.h"
#include "examples/serve/weights.h"
#include "extensions/ranks/communicator.h"
#include "interop/random/generator.h"
#include "interop/tensor/tensor.h"

namespace cgtree::serve {

// A Model launches the kernels of a step. With several ranks each has a Model; all take the same
// steps, and sum up over a communicator after a product with a divided depth (Shoeybi et al.,
// "Megatron-LM", 2019). Thread safety: any number of threads.
class Model {
 public:
  // `context` is the largest number of tokens of a request, a multiple of 16. Throws OutOfMemory,
  // DeviceError, and as Products.
  Model(const ModelConfig& config, const Shard& shard, Weights weights, std::int64_t context);

  const ModelConfig& config() const noexcept { return config_; }
  const Weights& weights() const noexcept { return weights_; }
  std::int64_t context() const noexcept { return context_; }
  Device device() const noexcept { return weights_.embedding.device(); }
  DType dtype() const noexcept { return weights_.embedding.dtype(); }

  // Returns the keys and values of `blocks` blocks, {layers, 2, blocks, kv_heads', 16, head_size}.
  // They are not set: a request reads only positions that it wrote.
  Tensor make_kv_cache(std::int64_t blocks) const;

  // The two step functions. They launch on current_stream() and allocate with empty(). Both return
  // logits, float32 {rows or prompts, vocabulary'}. `communicator` is null for one rank.
  //
  // decode() feeds one token per row of a `batch` as described in kernels.h.
  Tensor decode(const Tensor& batch, const Tensor& kv_cache, Communicator* communicator) const;
  // prefill() feeds whole prompts. `tokens` is int32 {prompts, length}, with -1 after the end of a
  // shorter one; `tables` is int32 {prompts, blocks}, their blocks of the cache.
  Tensor prefill(const Tensor& tokens, const Tensor& tables, const Tensor& kv_cache,
                 Communicator* communicator) const;

  // Returns the token for each row of logits, int32 {rows}: the likeliest token, or with a
  // temperature a drawn token.
  Tensor choose_tokens(const Tensor& logits, float temperature, const Generator& generator,
                       Communicator* communicator) const;

 private:
  // Returns the rows of a batch after all layers and the last norm, {rows, hidden}.
  Tensor run_layers(const Tensor& batch, const Tensor& kv_cache, Communicator* communicator) const;
  Tensor normalize(const Tensor& x, const Tensor& delta, const Tensor& gain) const;
  Tensor multiply(const Tensor& x, const Tensor& w, DType dtype) const;

  ModelConfig config_;
  Shard shard_;
  Weights weights_;
  std::int64_t context_;
  Tensor angles_;  // {context, head_size}
  Products products_;
};

}  // namespace cgtree::serve
