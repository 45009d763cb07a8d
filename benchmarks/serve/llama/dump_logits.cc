// Writes a model of examples/serve with made-up weights, prompts, and the logits after each prompt,
// for a comparison with another implementation: benchmarks/peers/torch_logits.py.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "benchmarks/serve/options.h"
#include "cgtree/cgtree.h"
#include "examples/serve/model.h"
#include "examples/serve/numbers.h"
#include "interop/device/device.h"
#include "interop/tensor/empty.h"

namespace cgtree::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kContext = 112;  // tokens

struct DumpOptions {
  std::string folder;
  std::string device = "auto";
  std::string model = "tiny";
  std::uint64_t seed = 1;
};

// Returns the text of Hugging Face's config.json.
std::string to_json(const ModelConfig& c, DType dtype) {
  Json json = {{"architectures", {"LlamaForCausalLM"}},
               {"model_type", "llama"},
               {"num_hidden_layers", c.layers},
               {"hidden_size", c.hidden},
               {"num_attention_heads", c.heads},
               {"num_key_value_heads", c.kv_heads},
               {"head_dim", c.head_size},
               {"intermediate_size", c.ffn},
               {"vocab_size", c.vocabulary},
               {"rms_norm_eps", c.norm_epsilon},
               {"rope_theta", c.rope_theta},
               {"hidden_act", "silu"},
               {"max_position_embeddings", 131'072},
               {"tie_word_embeddings", c.tied},
               {"torch_dtype", name(dtype)}};
  if (const std::optional<RopeScaling>& s = c.rope_scaling) {
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", s->factor},
                            {"low_freq_factor", s->low_frequency_factor},
                            {"high_freq_factor", s->high_frequency_factor},
                            {"original_max_position_embeddings", s->original_context}};
  }
  return json.dump(2) + "\n";
}

// Writes model.safetensors.
void save_weights(const std::filesystem::path& folder, const Weights& weights) {
  Json header = Json::object();
  std::size_t offset = 0;
  for (const Weights::Part& part : weights.parts) {
    const std::size_t end = offset + part.to.bytes();
    header[part.name] = {{"dtype", part.to.dtype() == DType::kFloat32 ? "F32" : "BF16"},
                         {"shape", part.shape},
                         {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  const std::filesystem::path path = folder / "model.safetensors";
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text;
  for (const Weights::Part& part : weights.parts) {
    std::vector<char> bytes(part.to.bytes());
    part.to.copy_to_host(bytes.data(), bytes.size());
    file.write(bytes.data(), std::ssize(bytes));
  }
  if (!file.flush()) throw InvalidArgument(fmt::format("'{}': cannot be written", path.string()));
}

void dump(const DumpOptions& options) {
  const Device device = parse_device(options.device);
  const ModelConfig config = named_config(options.model);
  const Model model(config, {}, random_weights(config, {}, options.seed, device), kContext);
  const std::filesystem::path folder = from_caller(options.folder);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << to_json(config, model.dtype());
  save_weights(folder, model.weights());

  std::vector<std::int32_t> table(kContext / kBlockSize);
  std::iota(table.begin(), table.end(), 0);
  const auto upload = [&](const std::vector<std::int32_t>& values) {
    return from_host<std::int32_t>({1, std::ssize(values)}, values, device);
  };
  const Tensor tables = upload(table), cache = model.make_kv_cache(std::ssize(table));
  Context context(device);
  nlohmann::json prompts, logits;
  for (const std::uint64_t length : {1, 2, 7, 16, 33, 100}) {
    std::vector<std::int32_t> tokens;
    for (std::uint64_t i = 0; i < length; ++i) {
      const std::uint64_t hash = mix(mix(options.seed + length) ^ i);
      tokens.push_back(
          static_cast<std::int32_t>(hash % static_cast<std::uint64_t>(config.vocabulary)));
    }
    const Tensor input = upload(tokens);
    const Tensor last = context.eager([&] { return model.prefill(input, tables, cache, nullptr); });
    context.synchronize();
    prompts.push_back(tokens);
    logits.push_back(last.to_vector<float>());
  }
  std::ofstream(folder / "tokens.json") << nlohmann::json{{"prompts", prompts}};
  std::ofstream(folder / "logits.json") << nlohmann::json{{"logits", logits}};
  fmt::print("wrote the model and the logits of {} prompts to {}\n", prompts.size(),
             folder.string());
}

}  // namespace
}  // namespace cgtree::serve

int main(int argc, char** argv) {
  cgtree::serve::DumpOptions options;
  CLI::App app("Writes a Llama model, prompts, and the logits after each prompt.");
  app.option_defaults()->always_capture_default();
  app.add_option("folder", options.folder, "where to write")->required();
  app.add_option("--device", options.device, "auto, host, cuda or cuda:N");
  app.add_option("--model", options.model)->check(CLI::IsMember({"tiny", "1b", "8b"}));
  app.add_option("--seed", options.seed, "of weights and prompts");
  CLI11_PARSE(app, argc, argv);
  try {
    cgtree::serve::dump(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "dump_logits: {}\n", error.what());
    return 1;
  }
}
