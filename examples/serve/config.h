// ModelConfig: the sizes and constants of a model of Llama's architecture.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace cgtree::serve {

// The frequencies of Llama 3.1, which stretch those whose wavelength exceeds the context of the
// model's first training. Source: `rope_type` "llama3" of Hugging Face's transformers.
struct RopeScaling {
  double factor = 8;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  double original_context = 8192;  // tokens

  bool operator==(const RopeScaling&) const = default;
};

struct ModelConfig {
  std::int64_t layers = 2;
  std::int64_t hidden = 128;      // a multiple of 8, at most 8192
  std::int64_t heads = 8;         // a multiple of kv_heads
  std::int64_t kv_heads = 4;      // heads / kv_heads queries share keys and values
  std::int64_t head_size = 16;    // 16, 32, 64 or 128
  std::int64_t ffn = 256;         // a multiple of 8
  std::int64_t vocabulary = 512;  // a multiple of 8
  double norm_epsilon = 1e-5;
  double rope_theta = 500'000;
  std::optional<RopeScaling> rope_scaling = {};
  bool tied = false;  // the embedding is also the head

  std::int64_t parameters() const;
  bool operator==(const ModelConfig&) const = default;
};

// Returns the configuration "tiny", "1b" or "8b". Throws InvalidArgument for another name.
ModelConfig named_config(std::string_view name);

// Throws InvalidArgument for sizes that the kernels do not support, and unless `ranks` divides
// heads, ffn and vocabulary into sizes that they support.
void check_config(const ModelConfig& config, std::int64_t ranks);

// Reads Hugging Face's config.json. Throws InvalidArgument, with the path and the missing or
// unsupported field.
ModelConfig read_config(const std::filesystem::path& path);

}  // namespace cgtree::serve
