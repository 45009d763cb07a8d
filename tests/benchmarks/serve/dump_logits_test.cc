// The output of dump_logits: the model of its arguments, which examples/serve can load.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "examples/serve/config.h"
#include "examples/serve/weights.h"
#include "tests/support/run_program.h"

namespace cgtree::serve {
namespace {

namespace fs = std::filesystem;

TEST(DumpLogitsTest, WritesTheModelWithLogitsOfEachPrompt) {
  const fs::path folder = fs::path(::testing::TempDir()) / "dumped_llama";

  const testing::ProgramRun outcome = testing::run_program(
      "benchmarks/serve/llama/dump_logits --device=host --seed=3 " + folder.string());

  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const ModelConfig config = read_config(folder / "config.json");
  EXPECT_EQ(config, named_config("tiny"));
  const Weights loaded = load_weights(folder, config, {}, Device::host());
  const Weights made = random_weights(config, {}, 3, Device::host());
  ASSERT_EQ(loaded.parts.size(), made.parts.size());
  for (std::size_t i = 0; i < made.parts.size(); ++i)
    EXPECT_EQ(loaded.parts[i].to.to_vector<float>(), made.parts[i].to.to_vector<float>());
  std::ifstream tokens(folder / "tokens.json"), logits(folder / "logits.json");
  const auto prompts = nlohmann::json::parse(tokens).at("prompts");
  const auto rows = nlohmann::json::parse(logits).at("logits");
  ASSERT_EQ(prompts.size(), rows.size());
  for (const auto& row : rows)
    EXPECT_EQ(row.size(), static_cast<std::size_t>(config.vocabulary));
}

}  // namespace
}  // namespace cgtree::serve
