// The parts of which weights consist, and what is done with each of them.
#include "examples/serve/weights.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "examples/serve/numbers.h"
#include "examples/serve/safetensors.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"

namespace cgtree::serve {
namespace {

// A Builder allocates a rank's weights, and lists the parts in the order of a model.
class Builder {
 public:
  Builder(const ModelConfig& config, const Shard& shard, DType dtype, Device device)
      : config_(config), shard_(shard), dtype_(dtype), device_(device) {
    check_config(config, shard.ranks);
  }

  Weights build() {
    Weights w;
    const ModelConfig& c = config_;
    w.embedding = make(c.vocabulary, c.hidden);
    add("model.embed_tokens.weight", w.embedding, c.vocabulary, c.hidden, false, false);
    for (std::int64_t i = 0; i < c.layers; ++i) {
      Weights::Layer& layer = w.layers.emplace_back();
      prefix_ = fmt::format("model.layers.{}.", i);
      layer.attention_norm = vector("input_layernorm.weight");
      const std::int64_t q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
      layer.qkv = rows_of({{"self_attn.q_proj.weight", q},
                           {"self_attn.k_proj.weight", kv},
                           {"self_attn.v_proj.weight", kv}});
      layer.output = columns_of("self_attn.o_proj.weight", q);
      layer.ffn_norm = vector("post_attention_layernorm.weight");
      layer.gate_up = rows_of({{"mlp.gate_proj.weight", c.ffn}, {"mlp.up_proj.weight", c.ffn}});
      layer.down = columns_of("mlp.down_proj.weight", c.ffn);
    }
    prefix_.clear();
    w.final_norm = vector("model.norm.weight");
    if (c.tied) {
      const std::int64_t share = c.vocabulary / shard_.ranks;
      w.head = w.embedding.slice(0, shard_.rank * share, (shard_.rank + 1) * share);
    } else {
      w.head = rows_of({{"lm_head.weight", c.vocabulary}});
    }
    w.parts = std::move(parts_);
    return w;
  }

 private:
  Tensor make(std::int64_t rows, std::int64_t columns) const {
    return empty({rows, columns}, dtype_, device_);
  }
  void add(std::string name, Tensor to, std::int64_t rows, std::int64_t columns, bool splits_rows,
           bool splits_columns) {
    Patch patch{.seed = parts_.size(), .columns = columns};
    if (splits_rows) patch.first_row = shard_.rank * (rows / shard_.ranks);
    if (splits_columns) patch.first_column = shard_.rank * (columns / shard_.ranks);
    parts_.push_back({prefix_ + std::move(name), rows, columns, patch, std::move(to)});
  }
  Tensor vector(std::string name) {
    Tensor tensor = make(1, config_.hidden);
    add(std::move(name), tensor, 1, config_.hidden, false, false);
    return tensor.reshape({config_.hidden});
  }
  // One matrix with the rank's rows of several, one below the other.
  Tensor rows_of(const std::vector<std::pair<const char*, std::int64_t>>& sources) {
    std::int64_t rows = 0, first = 0;
    for (const auto& source : sources)
      rows += source.second / shard_.ranks;
    Tensor all = make(rows, config_.hidden);
    for (const auto& [name, count] : sources) {
      const std::int64_t share = count / shard_.ranks;
      add(name, all.slice(0, first, first + share), count, config_.hidden, true, false);
      first += share;
    }
    return all;
  }
  Tensor columns_of(const char* name, std::int64_t columns) {
    Tensor tensor = make(config_.hidden, columns / shard_.ranks);
    add(name, tensor, config_.hidden, columns, false, true);
    return tensor;
  }

  const ModelConfig& config_;
  Shard shard_;
  DType dtype_;
  Device device_;
  std::string prefix_;
  std::vector<Weights::Part> parts_;
};

// Source: IEEE 754-2008, binary16.
float half_to_float(std::uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                               : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25));
}

float element(const StoredTensor& tensor, std::size_t index) {
  std::uint16_t bits;
  float value;
  if (tensor.dtype == DType::kFloat32) {
    std::memcpy(&value, tensor.bytes.data() + 4 * index, 4);
    return value;
  }
  std::memcpy(&bits, tensor.bytes.data() + 2 * index, 2);
  return tensor.dtype == DType::kFloat16 ? half_to_float(bits) : to_float(BFloat16{bits});
}

void load(const Weights::Part& part, const StoredTensor& from) {
  const std::int64_t rows = part.to.dim(0), columns = part.to.dim(1);
  if (from.dtype == part.to.dtype() && columns == part.columns) {  // whole rows, as they are
    const auto first = static_cast<std::size_t>(part.patch.first_row * columns);
    return part.to.copy_from_host(from.bytes.data() + first * size_of(from.dtype), part.to.bytes());
  }
  with_type(part.to.dtype(), [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> values;
    values.reserve(static_cast<std::size_t>(part.to.elements()));
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t first =
          (part.patch.first_row + row) * part.columns + part.patch.first_column;
      for (std::int64_t column = 0; column < columns; ++column)
        values.push_back(from_float<T>(element(from, static_cast<std::size_t>(first + column))));
    }
    part.to.copy_from_host(values.data(), part.to.bytes());
  });
}

}  // namespace

// The variance of what passes through a matrix stays about the same.
Weights random_weights(const ModelConfig& config, const Shard& shard, std::uint64_t seed,
                       DType dtype, Device device) {
  Weights weights = Builder(config, shard, dtype, device).build();
  const Stream stream(device);
  for (const Weights::Part& part : weights.parts) {
    Patch patch = part.patch;
    patch.seed += mix(seed);
    const bool is_norm = part.rows == 1;
    const bool is_embedding = part.to.address() == weights.embedding.address() && !config.tied;
    const float spread = std::sqrt(3.0f / static_cast<float>(part.columns));
    fill_uniform(stream, part.to, patch, is_norm ? 1.0f : 0.0f,
                 is_norm        ? 0.1f
                 : is_embedding ? 1.0f
                                : spread);
  }
  stream.synchronize();
  return weights;
}

Weights load_weights(const std::filesystem::path& folder, const ModelConfig& config,
                     const Shard& shard, DType dtype, Device device) {
  const Checkpoint checkpoint(folder);
  Weights weights = Builder(config, shard, dtype, device).build();
  for (const Weights::Part& part : weights.parts)
    load(part, checkpoint.find(part.name, part.shape()));
  return weights;
}

void save_weights(const std::filesystem::path& folder, const Weights& weights) {
  std::vector<NamedShape> shapes;
  for (const Weights::Part& part : weights.parts)
    shapes.push_back({part.name, part.shape()});
  write_safetensors(folder / "model.safetensors", weights.embedding.dtype(), shapes,
                    [&weights](std::size_t i) {
                      const Tensor& tensor = weights.parts[i].to;
                      std::vector<std::byte> bytes(tensor.bytes());
                      tensor.copy_to_host(bytes.data(), bytes.size());
                      return bytes;
                    });
}

}  // namespace cgtree::serve
