// Writes models as checkpoints, for tests that read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/serve/config.h"
#include "examples/serve/weights.h"

namespace cgtree::serve {

inline nlohmann::json to_json(const ModelConfig& c) {
  nlohmann::json json = {{"model_type", "llama"},
                         {"num_hidden_layers", c.layers},
                         {"hidden_size", c.hidden},
                         {"num_attention_heads", c.heads},
                         {"num_key_value_heads", c.kv_heads},
                         {"head_dim", c.head_size},
                         {"intermediate_size", c.ffn},
                         {"vocab_size", c.vocabulary},
                         {"rms_norm_eps", c.norm_epsilon},
                         {"rope_theta", c.rope_theta},
                         {"tie_word_embeddings", c.tied}};
  if (const std::optional<RopeScaling>& s = c.rope_scaling) {
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", s->factor},
                            {"low_freq_factor", s->low_frequency_factor},
                            {"high_freq_factor", s->high_frequency_factor},
                            {"original_max_position_embeddings", s->original_context}};
  }
  return json;
}

// Writes model.safetensors.
inline void save_weights(const std::filesystem::path& folder, const Weights& weights) {
  nlohmann::ordered_json header;
  std::string data;
  for (const Weights::Part& part : weights.parts) {
    const std::size_t begin = data.size();
    data.resize(begin + part.to.bytes());
    part.to.copy_to_host(data.data() + begin, part.to.bytes());
    header[part.name] = {{"dtype", part.to.dtype() == DType::kFloat32 ? "F32" : "BF16"},
                         {"shape", part.shape},
                         {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream file(folder / "model.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text << data;
}

}  // namespace cgtree::serve
