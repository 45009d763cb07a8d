// Refused command lines, and their messages.
#include "benchmarks/serve/options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace cgtree::serve {
namespace {

std::variant<Options, EarlyExit> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "serve");
  return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

TEST(OptionsTest, DefaultsServeASeededTraceInBothModes) {
  const auto options = std::get<Options>(parse({}));

  EXPECT_FALSE(options.trace);
  EXPECT_FALSE(options.requests);
  EXPECT_EQ(options.mode, Mode::kBoth);
  EXPECT_EQ(options.device, "auto");
}

TEST(OptionsTest, ReadsEveryOption) {
  const auto options = std::get<Options>(parse(
      {"--trace=t.csv", "--requests=9", "--device=host", "--mode=cgtree", "--max-batch=16",
       "--model=1b", "--layers=3", "--context=48", "--seed=9223372036854775807", "--json=out.json",
       "--step-ms=5", "--prompt=7", "--policy=exact", "--budget=3", "--soak=180"}));

  EXPECT_EQ(options.trace, "t.csv");
  EXPECT_EQ(options.requests, 9);
  EXPECT_EQ(options.device, "host");
  EXPECT_EQ(options.mode, Mode::kCgtree);
  EXPECT_EQ(options.max_batch, 16);
  EXPECT_EQ(options.model.layers, 3);
  EXPECT_EQ(options.model.hidden, 2048);
  EXPECT_EQ(options.context, 48);
  EXPECT_EQ(options.seed, 9223372036854775807);
  EXPECT_EQ(options.json, "out.json");
  EXPECT_EQ(options.step_ms, 5);
  EXPECT_EQ(options.prompt, 7);
  EXPECT_EQ(options.policy, Policy::kExact);
  EXPECT_EQ(options.budget, 3);
  EXPECT_EQ(options.soak_seconds, 180);
}

TEST(OptionsTest, AllPoliciesCanBeAskedFor) {
  EXPECT_EQ(std::get<Options>(parse({"--policy=all"})).policy, std::nullopt);
}

TEST(OptionsTest, ListedBatchesAreSortedAndBelongToTheirPolicy) {
  const auto options = std::get<Options>(parse({"--policy=listed", "--batches=8,1,2"}));

  EXPECT_EQ(options.policy, Policy::kListed);
  EXPECT_EQ(options.batches, (std::vector<std::int64_t>{1, 2, 8}));
  for (const std::vector<const char*>& given :
       {std::vector<const char*>{"--policy=listed"}, {"--batches=1,2"}}) {
    const auto exit = std::get<EarlyExit>(parse(given));
    EXPECT_EQ(exit.code, 2);
    EXPECT_NE(exit.text.find("need each other"), std::string::npos) << exit.text;
  }
}

TEST(OptionsTest, TheFirstRequestsAreForSuggestedSizes) {
  EXPECT_EQ(std::get<Options>(parse({"--suggest-from=9"})).suggest_from, 9);
  const auto exit = std::get<EarlyExit>(parse({"--suggest-from=9", "--policy=buckets"}));
  EXPECT_EQ(exit.code, 2);
  EXPECT_NE(exit.text.find("--policy=suggested"), std::string::npos) << exit.text;
}

TEST(OptionsTest, HelpEndsWithSuccessAndNamesTheOptions) {
  const auto exit = std::get<EarlyExit>(parse({"--help"}));

  EXPECT_EQ(exit.code, 0);
  for (const char* name : {"--trace", "--requests", "--device", "--mode", "--max-batch", "--layers",
                           "--model", "--context", "--seed", "--json", "--policy", "--batches",
                           "--suggest-from", "--budget", "--soak"})
    EXPECT_NE(exit.text.find(name), std::string::npos) << name;
}

class BadOptionTest : public testing::TestWithParam<std::vector<const char*>> {};

TEST_P(BadOptionTest, EndsWithTwoAndNamesTheOption) {
  const auto parsed = parse(GetParam());

  ASSERT_TRUE(std::holds_alternative<EarlyExit>(parsed));
  const auto& exit = std::get<EarlyExit>(parsed);
  EXPECT_EQ(exit.code, 2);
  const std::string argument = GetParam().front();
  EXPECT_NE(exit.text.find(argument.substr(0, argument.find('='))), std::string::npos) << exit.text;
}

INSTANTIATE_TEST_SUITE_P(
    CommandLines, BadOptionTest,
    testing::Values(std::vector{"--layers=-1"}, std::vector{"--layers=1001"},
                    std::vector{"--context=1e9"}, std::vector{"--context=99999999999999999999"},
                    std::vector{"--max-batch=1000000"}, std::vector{"--model=2b"},
                    std::vector{"--context=0"}, std::vector{"--requests=0"},
                    std::vector{"--requests=many"}, std::vector{"--seed=-1"},
                    std::vector{"--device=tpu"}, std::vector{"--mode=fast"},
                    std::vector{"--policy=best"}, std::vector{"--budget=-1"},
                    std::vector{"--soak=-1"}, std::vector{"--nonsense"}, std::vector{"extra"},
                    std::vector{"--layers"}, std::vector{"--layers=2.5"},
                    std::vector{"--layers=2", "--layers=3"}));

TEST(OptionsTest, APromptIsNeverLongerThanTheContext) {
  const auto options = std::get<Options>(parse({"--prompt=100", "--context=10"}));

  EXPECT_EQ(options.scheduler().max_prompt, 10);
}

TEST(OptionsTest, RelativePathsAreTheCallers) {
  setenv("BUILD_WORKING_DIRECTORY", "/caller", 1);
  EXPECT_EQ(from_caller("t.csv"), "/caller/t.csv");
  EXPECT_EQ(from_caller("/else/t.csv"), "/else/t.csv");
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(from_caller("t.csv"), "t.csv");
}

}  // namespace
}  // namespace cgtree::serve
