// The weights, and the order of the kernels in a step.
#include "examples/serve/model.h"

#include <cmath>

#include "examples/serve/kernels.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"

namespace cgtree::serve {
namespace {

// A WeightMaker fills weights on a stream; each tensor has a seed of its own.
class WeightMaker {
 public:
  WeightMaker(std::uint64_t seed, Device device) : seed_(seed), stream_(device) {}

  // The variance of what passes through stays the same.
  Tensor matrix(std::int64_t depth, std::int64_t columns) {
    return make({depth, columns}, 0.0f, std::sqrt(3.0f / static_cast<float>(depth)));
  }
  Tensor table(std::int64_t entries, std::int64_t width) {
    return make({entries, width}, 0.0f, std::sqrt(3.0f));  // variance 1
  }
  Tensor gain(std::int64_t width) { return make({width}, 1.0f, 0.1f); }
  void wait() const { stream_.synchronize(); }

 private:
  Tensor make(const Shape& shape, float center, float spread) {
    Tensor tensor = empty(shape, DType::kFloat32, stream_.ref().device());
    fill_uniform(stream_, tensor, (seed_ << 20) + count_++, center, spread);
    return tensor;
  }

  std::uint64_t seed_;
  Stream stream_;
  std::uint64_t count_ = 0;
};

}  // namespace

Model::Model(const ModelSizes& sizes, std::uint64_t seed, Device device)
    : sizes_(sizes), device_(device) {
  const std::int64_t hidden = sizes.hidden;
  WeightMaker weights(seed, device);
  token_table_ = weights.table(sizes.vocabulary, hidden);
  position_table_ = weights.table(sizes.context, hidden);
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    Layer layer;
    layer.attention_norm = weights.gain(hidden);
    layer.qkv = weights.matrix(hidden, 3 * hidden);
    layer.projection = weights.matrix(hidden, hidden);
    layer.mlp_norm = weights.gain(hidden);
    layer.up = weights.matrix(hidden, 4 * hidden);
    layer.down = weights.matrix(4 * hidden, hidden);
    layers_.push_back(std::move(layer));
  }
  final_norm_ = weights.gain(hidden);
  head_ = weights.matrix(hidden, sizes.vocabulary);
  weights.wait();
}

Tensor Model::make_kv_cache() const {
  return empty({sizes_.layers, 2, sizes_.slots, sizes_.context, sizes_.hidden}, DType::kFloat32,
               device_);
}

Tensor Model::decode(const Tensor& batch, const Tensor& kv_cache) const {
  return choose_next(run_layers(batch, kv_cache));
}

Tensor Model::prefill(const Tensor& tokens, const Tensor& slots, const Tensor& kv_cache) const {
  const Tensor batch = empty({3, tokens.elements()}, DType::kInt32);
  lay_out_prompts(current_stream(), tokens, slots, batch);
  const Tensor x = run_layers(batch, kv_cache);
  const Tensor last = empty({tokens.dim(0), sizes_.hidden}, DType::kFloat32);
  take_last(current_stream(), tokens, x, last);
  return choose_next(last);
}

Tensor Model::run_layers(const Tensor& batch, const Tensor& kv_cache) const {
  Tensor x = empty({batch.dim(1), sizes_.hidden}, DType::kFloat32);
  embed(current_stream(), batch, token_table_, position_table_, x);
  for (std::int64_t layer = 0; layer < sizes_.layers; ++layer) {
    add_attention(batch, kv_cache, layer, x);
    add_mlp(layers_[static_cast<std::size_t>(layer)], x);
  }
  return x;
}

Tensor Model::choose_next(const Tensor& x) const {
  const StreamRef stream = current_stream();
  const Tensor logits = empty({x.dim(0), sizes_.vocabulary}, DType::kFloat32);
  multiply(stream, normalize(x, final_norm_), head_, logits, false);
  Tensor next = empty({x.dim(0)}, DType::kInt32);
  argmax(stream, logits, next);
  return next;
}

void Model::add_attention(const Tensor& batch, const Tensor& kv_cache, std::int64_t index,
                          const Tensor& x) const {
  const StreamRef stream = current_stream();
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  const std::int64_t rows = x.dim(0);
  const Tensor qkv = empty({rows, 3 * sizes_.hidden}, DType::kFloat32);
  multiply(stream, normalize(x, layer.attention_norm), layer.qkv, qkv, false);
  write_cache(stream, batch, qkv, kv_cache, index);
  const Tensor attended = empty({rows, sizes_.hidden}, DType::kFloat32);
  attend(stream, batch, qkv, kv_cache, index, sizes_.heads, attended);
  multiply(stream, attended, layer.projection, x, true);
}

void Model::add_mlp(const Layer& layer, const Tensor& x) const {
  const StreamRef stream = current_stream();
  const Tensor wide = empty({x.dim(0), 4 * sizes_.hidden}, DType::kFloat32);
  multiply(stream, normalize(x, layer.mlp_norm), layer.up, wide, false);
  gelu(stream, wide);
  multiply(stream, wide, layer.down, x, true);
}

Tensor Model::normalize(const Tensor& x, const Tensor& gain) const {
  Tensor y = empty(x.shape(), DType::kFloat32);
  rms_norm(current_stream(), x, gain, y);
  return y;
}

}  // namespace cgtree::serve
