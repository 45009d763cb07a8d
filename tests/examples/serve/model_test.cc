// The model compared with a reference in plain loops, and the inputs and side effects of its steps.
#include "examples/serve/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cgtree/cgtree.h"
#include "extensions/watch/monitor.h"
#include "tests/examples/serve/llama_reference.h"
#include "tests/examples/serve/serve_devices.h"
#include "tests/support/devices.h"

namespace cgtree::serve {
namespace {

using Ints = std::vector<std::int32_t>;
using Floats = std::vector<float>;

LlamaReference reference_of(const ModelConfig& config, const Weights& weights) {
  std::map<std::string, std::vector<double>> named;
  for (const Weights::Part& part : weights.parts) {
    const Floats values = floats_of(part.to);
    named[part.name].assign(values.begin(), values.end());
  }
  return {config, std::move(named)};
}

// One row of a decode step.
struct Fed {
  std::int32_t token;
  std::int32_t position;
  Ints blocks;
};

// A small random model, run eagerly. Unwritten parts of the cache are NaN, so that a wrong read
// shows.
class ModelTest : public ::testing::TestWithParam<testing::DeviceUnderTest> {
 protected:
  ModelTest() : seed_(std::random_device()()), random_(seed_) {
    RecordProperty("seed", std::to_string(seed_));
  }
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    config_.layers = 2;
    config_.hidden = 8 * draw(4, 12);
    config_.kv_heads = draw(1, 3);
    config_.heads = config_.kv_heads * draw(1, 5);
    config_.head_size = 16 << draw(0, 3);
    config_.ffn = 8 * draw(3, 20);
    config_.vocabulary = 8 * draw(5, 30);
    config_.tied = draw(0, 1) == 0;
    if (draw(0, 1) == 0) config_.rope_scaling = RopeScaling{8, 1, 4, 32};
    make_model();
  }
  void make_model() {
    model_ = std::make_unique<Model>(config_, Shard(), random_weights(config_, {}, seed_, device()),
                                     kContext);
    context_ = std::make_unique<Context>(device());
    cache_ = model_->make_kv_cache(kBlocks);
    clear();
  }
  void clear() {
    const Floats nan(static_cast<std::size_t>(cache_.elements()),
                     std::numeric_limits<float>::quiet_NaN());
    cache_ = tensor_of(cache_.shape(), nan, device());
  }

  Device device() const { return GetParam().device; }
  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  Ints random_tokens(std::int64_t count) {
    Ints tokens;
    while (std::ssize(tokens) < count)
      tokens.push_back(static_cast<std::int32_t>(draw(0, config_.vocabulary - 1)));
    return tokens;
  }
  // Returns that many tables of different blocks, in random order.
  std::vector<Ints> random_tables(std::size_t count) {
    Ints blocks(kBlocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random_);
    std::vector<Ints> tables;
    for (std::size_t i = 0; i < count; ++i)
      tables.emplace_back(blocks.begin() + i * kTable, blocks.begin() + (i + 1) * kTable);
    return tables;
  }

  // Shorter prompts are padded. Returns the logits, prompt by prompt.
  Floats prefill(const std::vector<Ints>& prompts, const std::vector<Ints>& tables,
                 std::size_t more_padding = 0) {
    std::size_t length = 0;
    for (const Ints& prompt : prompts)
      length = std::max(length, prompt.size() + more_padding);
    Ints tokens, blocks;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      tokens.insert(tokens.end(), prompts[i].begin(), prompts[i].end());
      tokens.resize((i + 1) * length, -1);
      blocks.insert(blocks.end(), tables[i].begin(), tables[i].end());
    }
    const std::int64_t count = std::ssize(prompts);
    const Tensor input =
        from_host<std::int32_t>({count, static_cast<std::int64_t>(length)}, tokens, device());
    const Tensor table = from_host<std::int32_t>({count, kTable}, blocks, device());
    const Tensor logits =
        context_->eager([&] { return model_->prefill(input, table, cache_, nullptr); });
    context_->synchronize();
    return logits.to_vector<float>();
  }
  Floats step(const std::vector<Fed>& rows) {
    Ints batch;
    for (const Fed& row : rows) {
      batch.push_back(row.token);
      batch.push_back(row.position);
      batch.insert(batch.end(), row.blocks.begin(), row.blocks.end());
    }
    const Tensor input = from_host<std::int32_t>({std::ssize(rows), 2 + kTable}, batch, device());
    const Tensor logits = context_->eager([&] { return model_->decode(input, cache_, nullptr); });
    context_->synchronize();
    return logits.to_vector<float>();
  }

  // The error of all logits together, relative to their size: in a bfloat16 model it comes from
  // rounding activations to eight bits, a few times per layer.
  void expect_close(const Floats& actual, std::size_t row, const std::vector<double>& expected) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    double errors = 0, squares = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      errors += std::pow(actual[row * expected.size() + i] - expected[i], 2);
      squares += std::pow(expected[i], 2);
    }
    ASSERT_GT(squares, 0);
    ASSERT_LT(std::sqrt(errors / squares), tolerance()) << "row " << row;
  }
  double tolerance() const { return model_->dtype() == DType::kFloat32 ? 1e-4 : 0.04; }

  static constexpr std::int64_t kContext = 96;
  static constexpr std::int64_t kTable = kContext / kBlockSize;
  static constexpr std::int64_t kBlocks = 4 * kTable;

  std::uint64_t seed_;
  std::mt19937_64 random_;
  ModelConfig config_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Context> context_;
  Tensor cache_;
};
INSTANTIATE_TEST_SUITE_P(Devices, ModelTest, ::testing::ValuesIn(testing::devices_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST_P(ModelTest, PrefillAndDecodeGiveTheLogitsOfTheReference) {
  const LlamaReference reference = reference_of(config_, model_->weights());
  std::vector<Ints> requests;
  for (const std::int64_t length : {draw(1, 8), draw(16, 33), draw(34, 80)})
    requests.push_back(random_tokens(length));
  const std::vector<Ints> tables = random_tables(3);

  const Floats first = prefill(requests, tables);
  for (std::size_t i = 0; i < 3; ++i)
    expect_close(first, i, reference.logits(requests[i]).back());

  // Greedy decoding: each request takes the token with the largest logit.
  Floats logits = first;
  for (int generated = 0; generated < 4; ++generated) {
    std::vector<Fed> rows;
    for (std::size_t i = 0; i < 3; ++i) {
      const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(i) * config_.vocabulary;
      const auto token =
          static_cast<std::int32_t>(std::max_element(begin, begin + config_.vocabulary) - begin);
      rows.push_back({token, static_cast<std::int32_t>(requests[i].size()), tables[i]});
      requests[i].push_back(token);
    }
    logits = step(rows);
    for (std::size_t i = 0; i < 3; ++i)
      expect_close(logits, i, reference.logits(requests[i]).back());
  }
}

// Except for nodes that the library adds: the copy of the batch.
TEST_P(ModelTest, EachNodeOfAStepIsInAScope) {
  const auto decode =
      compile(*context_, "decode",
              [&](Tensor batch, Tensor cache) { return model_->decode(batch, cache, nullptr); },
              {.inputs = {{}, {.is_static = true, .is_mutated = true}}});
  const Ints table = random_tables(1)[0];
  for (std::int32_t call = 0; call < 3; ++call) {
    Ints batch = {1, call};
    batch.insert(batch.end(), table.begin(), table.end());
    (void)decode(from_host<std::int32_t>({1, 2 + kTable}, batch, device()), cache_);
  }
  const auto snapshot = nlohmann::json::parse(snapshot_json(*context_));
  ASSERT_EQ(snapshot["nodes"].size(), 1u);
  const nlohmann::json& scopes = snapshot["nodes"][0]["scopes"];
  std::map<std::string, int> nodes;
  for (const std::size_t path : scopes["node_paths"])
    ++nodes[scopes["paths"][path]];
  EXPECT_EQ(nodes.extract("").mapped(), 1);
  std::vector<std::string> names;
  for (const auto& [name, count] : nodes)
    names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"embedding", "head", "layer 0/attention", "layer 0/mlp",
                                      "layer 1/attention", "layer 1/mlp", "norm"}));
}

TEST_P(ModelTest, TokenByTokenGivesWhatTheWholePromptGives) {
  const Ints prompt = random_tokens(40);
  const std::vector<Ints> tables = random_tables(2);
  const Floats whole = prefill({prompt}, tables);

  Floats logits;
  for (std::size_t i = 0; i < prompt.size(); ++i)
    logits = step({{prompt[i], static_cast<std::int32_t>(i), tables[1]}});

  expect_close(logits, 0, std::vector<double>(whole.begin(), whole.end()));
}

TEST_P(ModelTest, BlocksOfARequestThatHasEndedRememberNothing) {
  const LlamaReference reference = reference_of(config_, model_->weights());
  const std::vector<Ints> tables = random_tables(1);
  prefill({random_tokens(90)}, tables);
  Ints reused = tables[0];
  std::shuffle(reused.begin(), reused.end(), random_);
  Ints request = random_tokens(21);

  const Floats first = prefill({request}, {reused});
  expect_close(first, 0, reference.logits(request).back());
  request.push_back(3);
  expect_close(step({{3, 21, reused}}), 0, reference.logits(request).back());
}

TEST_P(ModelTest, TheOrderOfBlocksChangesNoBit) {
  const Ints prompt = random_tokens(60);
  std::vector<Ints> tables = random_tables(2);
  const Floats a = prefill({prompt}, {tables[0]});
  const Floats b = prefill({prompt}, {tables[1]});
  EXPECT_EQ(a, b);
  EXPECT_EQ(step({{1, 60, tables[0]}}), step({{1, 60, tables[1]}}));
}

TEST_P(ModelTest, PaddedRowsTouchNothingAndChangeNothing) {
  const std::vector<Ints> tables = random_tables(1);
  const Ints padding(kTable, -1);
  const Fed fed{5, 0, tables[0]};
  const Floats without = step({fed, {1, -1, padding}});
  const auto before = floats_of(cache_);

  const Floats with = step({fed, {-1, -1, padding}});

  // A batch of another size may be summed in another order.
  expect_close(with, 0, std::vector<double>(without.begin(), without.end()));
  const auto after = floats_of(cache_);
  for (std::size_t i = 0; i < after.size(); ++i)
    ASSERT_TRUE(after[i] == before[i] || (std::isnan(after[i]) && std::isnan(before[i]))) << i;
}

TEST_P(ModelTest, PromptsArePaddedWithoutATrace) {
  const LlamaReference reference = reference_of(config_, model_->weights());
  const Ints prompt = random_tokens(19);
  const std::vector<Ints> tables = random_tables(2);
  const Floats logits = prefill({prompt, {}}, {tables[0], Ints(kTable, -1)}, 13);

  expect_close(logits, 0, reference.logits(prompt).back());
  const auto written = floats_of(cache_);
  const auto nan =
      std::count_if(written.begin(), written.end(), [](float value) { return std::isnan(value); });
  EXPECT_EQ(std::ssize(written) - nan,
            config_.layers * 2 * config_.kv_heads * config_.head_size * std::ssize(prompt));
}

TEST_P(ModelTest, GreedyTokensAreThoseOfTheLargestLogits) {
  const Floats logits = prefill({random_tokens(9), random_tokens(30)}, random_tables(2));
  const Tensor on_device = from_host<float>({2, config_.vocabulary}, logits, device());

  const Tensor next =
      context_->eager([&] { return model_->choose_tokens(on_device, 0, Generator(), nullptr); });

  context_->synchronize();
  Ints expected;
  for (int i = 0; i < 2; ++i) {
    const auto begin = logits.begin() + i * config_.vocabulary;
    expected.push_back(
        static_cast<std::int32_t>(std::max_element(begin, begin + config_.vocabulary) - begin));
  }
  EXPECT_EQ(next.to_vector<std::int32_t>(), expected);
}

}  // namespace
}  // namespace cgtree::serve
