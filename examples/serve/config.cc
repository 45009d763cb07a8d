// The named configurations, and config.json.
#include "examples/serve/config.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"

namespace cgtree::serve {

using Json = nlohmann::json;

std::int64_t ModelConfig::parameters() const {
  const std::int64_t attention = 2 * hidden * (heads + kv_heads) * head_size;
  const std::int64_t layer = attention + 3 * hidden * ffn + 2 * hidden;
  return layers * layer + (tied ? 1 : 2) * vocabulary * hidden + hidden;
}

ModelConfig named_config(std::string_view name) {
  if (name == "tiny") return {};
  ModelConfig config{.layers = 16,
                     .hidden = 2048,
                     .heads = 32,
                     .kv_heads = 8,
                     .head_size = 64,
                     .ffn = 8192,
                     .vocabulary = 128'256};
  if (name == "1b") return config;
  if (name != "8b") throw InvalidArgument(fmt::format("'{}' is not tiny, 1b or 8b", name));
  config.layers = 32;
  config.hidden = 4096;
  config.head_size = 128;
  config.ffn = 14'336;
  return config;
}

void check_config(const ModelConfig& c, std::int64_t ranks) {
  const auto expect = [](bool fits, std::string_view what, std::int64_t value,
                         std::string_view expected) {
    if (!fits) throw InvalidArgument(fmt::format("{} is {}, expected {}", what, value, expected));
  };
  constexpr std::int64_t kMost = 4096;
  expect(c.layers > 0 && c.layers <= kMost, "num_hidden_layers", c.layers, "1 to 4096");
  expect(c.heads > 0 && c.heads <= kMost, "num_attention_heads", c.heads, "1 to 4096");
  const std::int64_t d = c.head_size;
  expect(d == 16 || d == 32 || d == 64 || d == 128, "head_dim", d, "16, 32, 64 or 128");
  expect(c.hidden % 8 == 0 && c.hidden <= 8192, "hidden_size", c.hidden,
         "a multiple of 8 up to 8192");
  expect(c.kv_heads > 0 && c.heads % c.kv_heads == 0, "num_attention_heads", c.heads,
         fmt::format("a multiple of num_key_value_heads, {}", c.kv_heads));
  for (const auto& [what, value, unit] : {std::tuple("num_key_value_heads", c.kv_heads, ranks),
                                          {"intermediate_size", c.ffn, 8 * ranks},
                                          {"vocab_size", c.vocabulary, 8 * ranks}})
    expect(value % unit == 0, what, value,
           fmt::format("a multiple of {}, for {} ranks", unit, ranks));
}

namespace {

// Returns a size of a config.json. Throws InvalidArgument unless a model may have it, so that
// products of a few sizes do not overflow.
std::int64_t size_from(const Json& value, std::string_view what) {
  constexpr std::int64_t kLargest = 1 << 24;
  const auto size = value.get<double>();
  if (!(size >= 1 && size <= kLargest)) {
    throw InvalidArgument(fmt::format("{} is {}, expected 1 to {}", what, value.dump(), kLargest));
  }
  return value.get<std::int64_t>();
}

}  // namespace

ModelConfig read_config(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw InvalidArgument(fmt::format("cannot read '{}'", path.string()));
  try {
    const Json json = Json::parse(file);
    const std::string type = json.value("model_type", std::string("llama"));
    if (type != "llama") throw InvalidArgument(fmt::format("model_type '{}' is not llama", type));
    for (const char* bias : {"attention_bias", "mlp_bias"}) {
      if (json.value(bias, false)) throw InvalidArgument(fmt::format("{} is not supported", bias));
    }
    ModelConfig c;
    const auto size = [&](const char* what) { return size_from(json.at(what), what); };
    c.layers = size("num_hidden_layers");
    c.hidden = size("hidden_size");
    c.heads = size("num_attention_heads");
    c.kv_heads = json.contains("num_key_value_heads") ? size("num_key_value_heads") : c.heads;
    c.head_size =
        json.value("head_dim", Json()).is_number() ? size("head_dim") : c.hidden / c.heads;
    c.ffn = size("intermediate_size");
    c.vocabulary = size("vocab_size");
    c.norm_epsilon = json.value("rms_norm_eps", 1e-6);
    c.rope_theta = json.value("rope_theta", 10'000.0);
    c.tied = json.value("tie_word_embeddings", false);
    // Newer files have all constants of rope in one object.
    Json rope = json.value("rope_parameters", json.value("rope_scaling", Json()));
    if (!rope.is_object()) rope = Json::object();
    c.rope_theta = rope.value("rope_theta", c.rope_theta);
    const std::string kind = rope.value("rope_type", rope.value("type", std::string("default")));
    if (kind == "llama3") {
      c.rope_scaling = {rope.at("factor"), rope.at("low_freq_factor"), rope.at("high_freq_factor"),
                        rope.at("original_max_position_embeddings")};
    } else if (kind != "default") {
      throw InvalidArgument(fmt::format("rope_type '{}' is not supported, only llama3", kind));
    }
    return c;
  } catch (const Json::exception& error) {
    throw InvalidArgument(fmt::format("'{}': {}", path.string(), error.what()));
  } catch (const Error& error) {
    throw InvalidArgument(fmt::format("'{}': {}", path.string(), error.message()));
  }
}

}  // namespace cgtree::serve
