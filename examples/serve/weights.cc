// The table of a model's parts, and operations on each part.
#include "examples/serve/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "examples/serve/numbers.h"
#include "examples/serve/safetensors.h"
#include "interop/device/stream.h"
#include "interop/tensor/empty.h"

namespace cgtree::serve {
namespace {

enum class Divided { kNot, kRows, kColumns };

// A tensor of a checkpoint: its name after that of the layer, and its rows.
using Source = std::pair<const char*, std::int64_t>;

class Builder {
 public:
  Builder(const Shard& shard, Device device) : shard_(shard), device_(device) {}

  Weights build(const ModelConfig& c) {
    const std::int64_t q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
    Weights w;
    w.embedding = make(Divided::kNot, c.hidden, {{"model.embed_tokens.weight", c.vocabulary}});
    for (std::int64_t i = 0; i < c.layers; ++i) {
      Weights::Layer& layer = w.layers.emplace_back();
      prefix_ = fmt::format("model.layers.{}.", i);
      layer.attention_norm = make(Divided::kNot, c.hidden, {{"input_layernorm.weight", 1}});
      layer.qkv = make(Divided::kRows, c.hidden,
                       {{"self_attn.q_proj.weight", q},
                        {"self_attn.k_proj.weight", kv},
                        {"self_attn.v_proj.weight", kv}});
      layer.output = make(Divided::kColumns, q, {{"self_attn.o_proj.weight", c.hidden}});
      layer.ffn_norm = make(Divided::kNot, c.hidden, {{"post_attention_layernorm.weight", 1}});
      layer.gate_up = make(Divided::kRows, c.hidden,
                           {{"mlp.gate_proj.weight", c.ffn}, {"mlp.up_proj.weight", c.ffn}});
      layer.down = make(Divided::kColumns, c.ffn, {{"mlp.down_proj.weight", c.hidden}});
    }
    prefix_.clear();
    w.final_norm = make(Divided::kNot, c.hidden, {{"model.norm.weight", 1}});
    const std::int64_t share = c.vocabulary / shard_.ranks;
    w.head = c.tied ? w.embedding.slice(0, shard_.rank * share, (shard_.rank + 1) * share)
                    : make(Divided::kRows, c.hidden, {{"lm_head.weight", c.vocabulary}});
    w.parts = std::move(parts_);
    return w;
  }

 private:
  // Allocates one matrix with the rank's shares of the sources, stacked by rows.
  Tensor make(Divided divided, std::int64_t columns, const std::vector<Source>& sources) {
    const std::int64_t row_ranks = divided == Divided::kRows ? shard_.ranks : 1;
    const std::int64_t column_ranks = divided == Divided::kColumns ? shard_.ranks : 1;
    std::int64_t rows = 0, first = 0;
    for (const Source& source : sources)
      rows += source.second / row_ranks;
    const Tensor all = empty({rows, columns / column_ranks}, number_type(device_), device_);
    for (const auto& [name, count] : sources) {
      const std::int64_t share = count / row_ranks;
      const Patch patch{.seed = parts_.size(),
                        .first_row = row_ranks > 1 ? shard_.rank * share : 0,
                        .first_column = column_ranks > 1 ? shard_.rank * all.dim(1) : 0,
                        .columns = columns};
      parts_.push_back({prefix_ + name,
                        count == 1 ? std::vector{columns} : std::vector{count, columns}, patch,
                        all.slice(0, first, first + share)});
      first += share;
    }
    return all;
  }

  Shard shard_;
  Device device_;
  std::string prefix_;
  std::vector<Weights::Part> parts_;
};

Weights allocate(const ModelConfig& config, const Shard& shard, Device device) {
  check_config(config, shard.ranks);
  return Builder(shard, device).build(config);
}

// Source: IEEE 754-2008, binary16.
float half_to_float(std::uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                               : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25));
}

// Rounds to the nearest, ties to even.
std::uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return 0x7FC0;
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float element(DType dtype, const std::byte* bytes, std::int64_t index) {
  float value;
  std::uint16_t bits;
  if (dtype == DType::kFloat32) {
    std::memcpy(&value, bytes + 4 * index, sizeof(value));
    return value;
  }
  std::memcpy(&bits, bytes + 2 * index, sizeof(bits));
  return dtype == DType::kFloat16 ? half_to_float(bits)
                                  : std::bit_cast<float>(std::uint32_t{bits} << 16);
}

void load(const Weights::Part& part, const StoredTensor& from) {
  const std::vector<std::byte> bytes = read(from);
  const std::int64_t rows = part.to.dim(0), columns = part.to.dim(1);
  std::int64_t first = part.patch.first_row * part.patch.columns + part.patch.first_column;
  if (from.dtype == part.to.dtype() && columns == part.patch.columns) {  // whole rows, unchanged
    const std::size_t skipped = static_cast<std::size_t>(first) * size_of(from.dtype);
    return part.to.copy_from_host(bytes.data() + skipped, part.to.bytes());
  }
  std::vector<float> values;
  for (std::int64_t row = 0; row < rows; ++row, first += part.patch.columns) {
    for (std::int64_t column = 0; column < columns; ++column)
      values.push_back(element(from.dtype, bytes.data(), first + column));
  }
  if (part.to.dtype() == DType::kFloat32)
    return part.to.copy_from_host(values.data(), part.to.bytes());
  std::vector<std::uint16_t> rounded(values.size());
  std::ranges::transform(values, rounded.begin(), to_bfloat16);
  part.to.copy_from_host(rounded.data(), part.to.bytes());
}

}  // namespace

// The variance of values is about the same before and after a matrix.
Weights random_weights(const ModelConfig& config, const Shard& shard, std::uint64_t seed,
                       Device device) {
  Weights weights = allocate(config, shard, device);
  const Stream stream(device);
  for (const Weights::Part& part : weights.parts) {
    Patch patch = part.patch;
    patch.seed += mix(seed);
    const bool is_norm = part.shape.size() == 1;
    const bool is_embedding = part.to.address() == weights.embedding.address() && !config.tied;
    const float spread = std::sqrt(3.0f / static_cast<float>(patch.columns));
    fill_uniform(stream, part.to, patch, is_norm ? 1.0f : 0.0f,
                 is_norm        ? 0.1f
                 : is_embedding ? 1.0f
                                : spread);
  }
  stream.synchronize();
  return weights;
}

Weights load_weights(const std::filesystem::path& folder, const ModelConfig& config,
                     const Shard& shard, Device device) {
  const std::map<std::string, StoredTensor> stored = read_checkpoint(folder);
  Weights weights = allocate(config, shard, device);
  for (const Weights::Part& part : weights.parts) {
    const auto found = stored.find(part.name);
    if (found == stored.end()) {
      throw InvalidArgument(fmt::format("'{}': has no tensor {}; expected one of {}",
                                        folder.string(), part.name, part.shape));
    }
    const StoredTensor& from = found->second;
    if (from.shape != part.shape) {
      throw InvalidArgument(fmt::format("'{}': {} has shape {}, but config.json says {}",
                                        from.file.string(), part.name, from.shape, part.shape));
    }
    load(part, from);
  }
  return weights;
}

}  // namespace cgtree::serve
