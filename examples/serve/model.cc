// The order of the kernels in a step.
#include "examples/serve/model.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "extensions/scopes/scope.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"

namespace cgtree::serve {
namespace {

// Returns the angle by which pair `pair` of a head turns from one position to the next.
double frequency(const ModelConfig& config, std::int64_t pair) {
  const double plain = std::pow(
      config.rope_theta, -2.0 * static_cast<double>(pair) / static_cast<double>(config.head_size));
  if (!config.rope_scaling) return plain;
  const RopeScaling& s = *config.rope_scaling;
  const double turns = s.original_context * plain / (2 * std::numbers::pi);
  if (turns < s.low_frequency_factor) return plain / s.factor;
  if (turns > s.high_frequency_factor) return plain;
  const double smooth =
      (turns - s.low_frequency_factor) / (s.high_frequency_factor - s.low_frequency_factor);
  return (1 - smooth) * plain / s.factor + smooth * plain;
}

Tensor make_angles(const ModelConfig& config, std::int64_t context, Device device) {
  const std::int64_t half = config.head_size / 2;
  std::vector<float> angles(static_cast<std::size_t>(context * 2 * half));
  for (std::int64_t position = 0; position < context; ++position) {
    for (std::int64_t pair = 0; pair < half; ++pair) {
      // Both are float32 in Hugging Face's model.
      const float angle =
          static_cast<float>(position) * static_cast<float>(frequency(config, pair));
      const auto at = static_cast<std::size_t>(position * 2 * half + pair);
      angles[at] = static_cast<float>(std::cos(double{angle}));
      angles[at + static_cast<std::size_t>(half)] = static_cast<float>(std::sin(double{angle}));
    }
  }
  return from_host<float>({context, 2 * half}, angles, device);
}

}  // namespace

Model::Model(const ModelConfig& config, const Shard& shard, Weights weights, std::int64_t context)
    : config_(config),
      shard_(shard),
      weights_(std::move(weights)),
      context_(context),
      angles_(make_angles(config, context, weights_.embedding.device())),
      products_(weights_.embedding.device()) {
}

Tensor Model::make_kv_cache(std::int64_t blocks) const {
  return empty(
      {config_.layers, 2, blocks, config_.kv_heads / shard_.ranks, kBlockSize, config_.head_size},
      dtype(), device());
}

Tensor Model::decode(const Tensor& batch, const Tensor& kv_cache,
                     Communicator* communicator) const {
  const Tensor rows = run_layers(batch, kv_cache, communicator);
  const Scope head("head");
  return multiply(rows, weights_.head, DType::kFloat32);
}

Tensor Model::prefill(const Tensor& tokens, const Tensor& tables, const Tensor& kv_cache,
                      Communicator* communicator) const {
  const Tensor batch = empty({tokens.elements(), 2 + tables.dim(1)}, DType::kInt32);
  {
    const Scope layout("layout");
    lay_out_prompts(current_stream(), tokens, tables, batch);
  }
  const Tensor rows = run_layers(batch, kv_cache, communicator);
  const Scope head("head");
  const Tensor last = empty({tokens.dim(0), config_.hidden}, dtype());
  take_last(current_stream(), batch, rows, last);
  return multiply(last, weights_.head, DType::kFloat32);
}

// A layer's result is added to `x` by the norm that reads it next.
Tensor Model::run_layers(const Tensor& batch, const Tensor& kv_cache,
                         Communicator* communicator) const {
  const StreamRef stream = current_stream();
  const std::int64_t rows = batch.dim(0);
  const Tensor x = empty({rows, config_.hidden}, dtype());
  Tensor delta;
  {
    const Scope embedding("embedding");
    embed(stream, batch, weights_.embedding, x);
  }
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    const Weights::Layer& layer = weights_.layers[static_cast<std::size_t>(i)];
    const Scope scope(fmt::format("layer {}", i));
    std::optional<Scope> part(std::in_place, "attention");
    const Tensor qkv = multiply(normalize(x, delta, layer.attention_norm), layer.qkv, dtype());
    rope_and_cache(stream, batch, angles_, kv_cache, i, qkv);
    const Tensor attended = empty({rows, layer.output.dim(1)}, dtype());
    attend(stream, batch, qkv, kv_cache, i, attended);
    delta = multiply(attended, layer.output, dtype());
    if (communicator != nullptr) communicator->all_reduce(delta);

    part.emplace("mlp");
    const Tensor gate_up = multiply(normalize(x, delta, layer.ffn_norm), layer.gate_up, dtype());
    const Tensor activated = empty({rows, layer.down.dim(1)}, dtype());
    swiglu(stream, gate_up, activated);
    delta = multiply(activated, layer.down, dtype());
    if (communicator != nullptr) communicator->all_reduce(delta);
  }
  const Scope norm("norm");
  return normalize(x, delta, weights_.final_norm);
}

Tensor Model::choose_tokens(const Tensor& logits, float temperature, const Generator& generator,
                            Communicator* communicator) const {
  const Scope choice("choice");
  const StreamRef stream = current_stream();
  const std::int64_t rows = logits.dim(0), columns = logits.dim(1);
  PhiloxRange noise;
  if (temperature > 0) {
    const std::int64_t blocks = (rows * config_.vocabulary + 3) / 4;
    noise = generator.reserve(static_cast<std::uint64_t>(blocks));
  }
  Tensor keys = empty({chunks(rows, columns), rows}, DType::kInt64);
  choose(stream, logits, temperature, noise, shard_.rank * columns, config_.vocabulary, keys);
  if (communicator != nullptr) {
    const Tensor own = std::exchange(keys, empty({shard_.ranks * keys.dim(0), rows}, keys.dtype()));
    communicator->all_gather(own, keys);
  }
  Tensor next = empty({rows}, DType::kInt32);
  finish_choice(stream, keys, next);
  return next;
}

Tensor Model::normalize(const Tensor& x, const Tensor& delta, const Tensor& gain) const {
  Tensor y = empty(x.shape(), dtype());
  add_norm(current_stream(), x, delta, gain, static_cast<float>(config_.norm_epsilon), y);
  return y;
}

Tensor Model::multiply(const Tensor& x, const Tensor& w, DType dtype) const {
  Tensor y = empty({x.dim(0), w.dim(0)}, dtype);
  products_.multiply(current_stream(), x, w, y);
  return y;
}

}  // namespace cgtree::serve
