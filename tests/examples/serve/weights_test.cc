// Weights: shards of made-up models, checkpoints that are written and read again, and checkpoints
// that do not fit the model.
#include "examples/serve/weights.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "examples/serve/safetensors.h"
#include "tests/examples/serve/checkpoint_writer.h"
#include "tests/examples/serve/serve_devices.h"

namespace cgtree::serve {
namespace {

namespace fs = std::filesystem;

constexpr ModelConfig kConfig = {.layers = 2,
                                 .hidden = 24,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_size = 16,
                                 .ffn = 32,
                                 .vocabulary = 48};

class WeightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static Weights random(const Shard& shard = {}, const ModelConfig& config = kConfig) {
    return random_weights(config, shard, 7, Device::host());
  }
  Weights load(const Shard& shard = {}, const ModelConfig& config = kConfig) const {
    return load_weights(folder_, config, shard, Device::host());
  }
  static void expect_equal(const Weights& a, const Weights& b) {
    ASSERT_EQ(a.parts.size(), b.parts.size());
    for (std::size_t i = 0; i < a.parts.size(); ++i)
      EXPECT_EQ(floats_of(a.parts[i].to), floats_of(b.parts[i].to)) << a.parts[i].name;
  }
  // Returns the message of the exception of `body`.
  template <typename Body>
  static std::string message_of(Body body) {
    try {
      body();
    } catch (const InvalidArgument& error) {
      return std::string(error.message());
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }
  std::string message_of_load() const {
    return message_of([&] { load(); });
  }
  static void expect_words(const std::string& message, const std::vector<std::string>& words) {
    for (const std::string& word : words)
      EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
  }

  fs::path file() const { return folder_ / "model.safetensors"; }
  std::string read_file() const {
    std::ifstream stream(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  void write_file(const std::string& bytes) const {
    std::ofstream(file(), std::ios::binary) << bytes;
  }
  // Writes the file with another header and the same data.
  void change_header(const std::function<void(nlohmann::ordered_json&)>& change) const {
    const std::string bytes = read_file();
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    auto header = nlohmann::ordered_json::parse(bytes.substr(8, length));
    change(header);
    const std::string text = header.dump();
    const std::uint64_t changed = text.size();
    std::string start(8, '\0');
    std::memcpy(start.data(), &changed, 8);
    write_file(start + text + bytes.substr(8 + length));
  }

  fs::path folder_;
};

TEST_F(WeightsTest, ShardsOfAnyNumberOfRanksArePartsOfOneModel) {
  const Weights whole = random();
  for (const std::int64_t ranks : {1, 2}) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const Weights shard = random({rank, ranks});
      for (std::size_t i = 0; i < whole.parts.size(); ++i) {
        const Weights::Part& part = shard.parts[i];
        const auto all = floats_of(whole.parts[i].to), own = floats_of(part.to);
        const std::int64_t columns = part.to.dim(1);
        for (std::int64_t j = 0; j < std::ssize(own); ++j) {
          const std::int64_t row = part.patch.first_row + j / columns;
          const std::int64_t column = part.patch.first_column + j % columns;
          ASSERT_EQ(own[static_cast<std::size_t>(j)],
                    all[static_cast<std::size_t>(row * part.patch.columns + column)])
              << part.name;
        }
      }
    }
  }
}

// Every element is in the share of exactly one rank, except those that all ranks have.
TEST_F(WeightsTest, SharesCoverTheModel) {
  std::int64_t elements = 0, everywhere = 0;
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    for (const Weights::Part& part : random({rank, 2}).parts) {
      const bool is_whole =
          part.to.elements() == (part.shape.size() == 1 ? 1 : part.shape[0]) * part.patch.columns;
      (is_whole ? everywhere : elements) += part.to.elements();
    }
  }
  EXPECT_EQ(elements + everywhere / 2, kConfig.parameters());
}

TEST_F(WeightsTest, WrittenCheckpointsAreReadAgain) {
  save_weights(folder_, random());
  expect_equal(load(), random());
  for (std::int64_t rank = 0; rank < 2; ++rank)
    expect_equal(load({rank, 2}), random({rank, 2}));
}

TEST_F(WeightsTest, ATiedModelHasNoHeadInItsFile) {
  ModelConfig config = kConfig;
  config.tied = true;
  save_weights(folder_, random({}, config));

  const Weights weights = load({}, config);

  EXPECT_EQ(floats_of(weights.head), floats_of(weights.embedding));
  EXPECT_EQ(read_file().find("lm_head"), std::string::npos);
  expect_words(message_of_load(), {"lm_head.weight", "48, 24"});
}

// On a GPU, float32 is rounded to bfloat16, and bfloat16 is copied.
TEST_F(WeightsTest, TypesAreConverted) {
  if (Device::best().type == DeviceType::kHost) GTEST_SKIP() << "there is no GPU";
  const Weights weights = random();
  save_weights(folder_, weights);
  const Weights rounded = load_weights(folder_, kConfig, {}, Device::cuda());
  for (std::size_t i = 0; i < weights.parts.size(); ++i) {
    auto expected = floats_of(weights.parts[i].to);
    for (float& value : expected)
      value = bfloat16_to_float(float_to_bfloat16(value));
    EXPECT_EQ(floats_of(rounded.parts[i].to), expected);
  }
  save_weights(folder_, rounded);
  expect_equal(load(), rounded);
  expect_equal(load_weights(folder_, kConfig, {}, Device::cuda()), rounded);
}

TEST_F(WeightsTest, Float16IsConvertedExactly) {
  // Each finite number of float16, and its value from the definition.
  std::string bits;
  std::vector<float> expected;
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    if ((half >> 10 & 31) == 31) continue;
    bits.push_back(static_cast<char>(half & 255));
    bits.push_back(static_cast<char>(half >> 8));
    const int exponent = static_cast<int>(half >> 10 & 31);
    const double fraction = (half & 1023) / 1024.0;
    const double value = exponent == 0 ? fraction * std::pow(2.0, -14)
                                       : (1 + fraction) * std::pow(2.0, exponent - 15);
    expected.push_back(static_cast<float>(half >> 15 ? -value : value));
  }
  const auto count = std::ssize(expected);
  ModelConfig config = kConfig;
  config.hidden = 8;
  config.vocabulary = count / 8;
  const Weights weights = random({}, config);
  save_weights(folder_, weights);
  change_header([&](nlohmann::ordered_json& header) {
    // The embedding's float16 data are the first half of its float32 data.
    header["model.embed_tokens.weight"]["dtype"] = "F16";
    header["model.embed_tokens.weight"]["data_offsets"] = {0, bits.size()};
  });
  std::string bytes = read_file();
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  write_file(bytes.replace(8 + length, bits.size(), bits));

  EXPECT_EQ(floats_of(load({}, config).embedding), expected);
}

TEST_F(WeightsTest, FilesOfAnIndexAreOneCheckpoint) {
  const Weights weights = random();
  save_weights(folder_, weights);
  fs::rename(file(), folder_ / "a.safetensors");
  nlohmann::json map;
  for (const Weights::Part& part : weights.parts)
    map[part.name] = "a.safetensors";
  Weights more;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  more.parts.push_back({"more", {2, 3}, {}, from_host<float>({2, 3}, values, Device::host())});
  fs::create_directory(folder_ / "b");
  save_weights(folder_ / "b", more);
  fs::rename(folder_ / "b" / "model.safetensors", folder_ / "b.safetensors");
  map["more"] = "b.safetensors";
  std::ofstream(folder_ / "model.safetensors.index.json")
      << nlohmann::json{{"metadata", {}}, {"weight_map", map}};

  expect_equal(load(), weights);
  EXPECT_EQ(read(read_checkpoint(folder_).at("more")).size(), 24u);
}

TEST_F(WeightsTest, AMissingFileIsNamed) {
  expect_words(message_of_load(), {file().string(), "No such file"});
}

TEST_F(WeightsTest, ATruncatedFileIsNamedWithBothSizes) {
  save_weights(folder_, random());
  const std::string bytes = read_file();

  write_file(bytes.substr(0, bytes.size() - 1));
  expect_words(message_of_load(), {file().string(), "truncated", "of the data"});
  write_file(bytes.substr(0, 20));
  expect_words(message_of_load(), {file().string(), "header has", "12 after", "truncated"});
  write_file(bytes.substr(0, 7));
  expect_words(message_of_load(), {file().string(), "7 bytes"});
}

TEST_F(WeightsTest, AnotherShapeIsNamedWithBothShapes) {
  save_weights(folder_, random());
  ModelConfig config = kConfig;
  config.ffn = 40;
  const std::string message = message_of([&] { load({}, config); });
  expect_words(message, {"model.layers.0.mlp.gate_proj.weight", "[32, 24]", "[40, 24]"});
}

TEST_F(WeightsTest, AMissingTensorIsNamedWithItsShape) {
  save_weights(folder_, random());
  ModelConfig config = kConfig;
  config.layers = 3;
  const std::string message = message_of([&] { load({}, config); });
  expect_words(message, {folder_.string(), "model.layers.2.input_layernorm.weight", "[24]"});
}

TEST_F(WeightsTest, AnotherTypeIsNamedWithTheTypesThatFit) {
  save_weights(folder_, random());
  change_header([](auto& header) { header["model.norm.weight"]["dtype"] = "I64"; });
  expect_words(message_of_load(), {"model.norm.weight", "I64", "F32, BF16 or F16"});
}

TEST_F(WeightsTest, BytesThatDoNotFitTheShapeAreNamed) {
  save_weights(folder_, random());
  change_header([](auto& header) { header["model.norm.weight"]["dtype"] = "F16"; });
  expect_words(message_of_load(), {"model.norm.weight", "96 bytes", "48"});
}

TEST_F(WeightsTest, AFileOfAnotherFormatIsNamed) {
  write_file(std::string("\x04\0\0\0\0\0\0\0hey!", 12));
  expect_words(message_of_load(), {file().string(), "not one of safetensors"});
}

TEST_F(WeightsTest, ConfigsAreWrittenAndReadAgain) {
  ModelConfig config = named_config("1b");
  config.tied = true;
  config.rope_scaling = RopeScaling{32, 1, 4, 8192};
  std::ofstream(folder_ / "config.json") << to_json(config);
  EXPECT_EQ(read_config(folder_ / "config.json"), config);
}

TEST_F(WeightsTest, ConfigsThatCannotBeServedAreRefused) {
  const auto path = folder_ / "config.json";
  const auto read = [&] { read_config(path); };
  expect_words(message_of(read), {path.string()});
  std::ofstream(path) << R"({"hidden_size": 24})";
  expect_words(message_of(read), {path.string(), "num_hidden_layers"});
  auto json = to_json(kConfig);
  json["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4}};
  std::ofstream(path) << json;
  expect_words(message_of(read), {path.string(), "yarn", "llama3"});

  json = to_json(kConfig);
  json["attention_bias"] = true;
  std::ofstream(path) << json;
  expect_words(message_of(read), {path.string(), "attention_bias"});
  json["model_type"] = "gpt2";
  std::ofstream(path) << json;
  expect_words(message_of(read), {path.string(), "gpt2", "llama"});

  const auto message = message_of([] { random({0, 3}); });
  expect_words(message, {"num_key_value_heads is 2", "a multiple of 3, for 3 ranks"});
}

}  // namespace
}  // namespace cgtree::serve
