// A complete run in this process: a tiny model and trace in both modes on the host device.
#include "benchmarks/serve/run.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/error.h"

namespace cgtree::serve {
namespace {

Options tiny() {
  Options options;
  options.device = "host";
  options.requests = 20;
  options.prompt = 6;
  options.model = {.layers = 2,
                   .hidden = 16,
                   .heads = 2,
                   .kv_heads = 1,
                   .head_size = 16,
                   .ffn = 16,
                   .vocabulary = 32};
  options.context = 128;
  options.max_batch = 5;
  return options;
}

TEST(RunTest, BothModesAgreeAndNearlyEveryStepReplays) {
  const Report report = run(tiny());

  EXPECT_EQ(report.differing(), nullptr);
  ASSERT_TRUE(report.cgtree() != nullptr && report.eager);
  EXPECT_EQ(report.cgtree()->steps, report.eager->steps);
  ASSERT_TRUE(report.cgtree()->replay_share_after_100);
  EXPECT_GE(*report.cgtree()->replay_share_after_100, 0.95);
  EXPECT_EQ(report.eager->context.replays, 0u);
  EXPECT_EQ(report.eager->decode_work.padded, report.cgtree()->decode_work.padded);
}

TEST(RunTest, TwoRanksServeTheSameTokens) {
  Options options = tiny();
  options.model.kv_heads = 2;
  options.ranks = 2;
  const Report report = run(options);

  EXPECT_EQ(report.differing(), nullptr);
  EXPECT_GT(report.cgtree()->decode.replays, 0u);
  options.soak_seconds = 1;
  EXPECT_THROW((void)run_soak(options), InvalidArgument);
}

TEST(RunTest, BucketsAreRecordedOnceAndNothingIsSkipped) {
  Options options = tiny();
  options.policy = Policy::kBuckets;
  options.budget = 0;
  const Report report = run(options);

  EXPECT_EQ(report.cgtree()->decode.recordings, 4u);  // buckets 1, 2, 4 and 5
  EXPECT_EQ(report.cgtree()->context.skipped(), 0u);
  EXPECT_EQ(report.cgtree()->context.evictions, 0u);
  EXPECT_GT(report.cgtree()->decode_work.padded, 0);
  EXPECT_GT(report.cgtree()->prefill.replays, 0u);
  EXPECT_GT(report.cgtree()->context.pool_reserved_bytes, 0u);
}

TEST(RunTest, EveryPolicyAndBudgetGivesTheSameTokensWithinItsBudget) {
  Options options = tiny();
  options.policy = std::nullopt;
  options.max_batch = 20;
  const Report report = run(options);

  ASSERT_EQ(report.runs.size(), 12u);
  EXPECT_EQ(report.differing(), nullptr);
  for (const PolicyRun& run : report.runs) {
    SCOPED_TRACE(std::string(name(run.policy)) + ", " + std::to_string(run.budget));
    EXPECT_LE(run.served.context.kept_recordings, static_cast<std::size_t>(2 * run.budget));
    EXPECT_GT(run.served.decode.replays, 0u);
    if (run.policy == Policy::kExact) {
      EXPECT_EQ(run.served.decode_work.padded, 0);
    }
  }
  EXPECT_GT(report.runs.front().served.context.evictions, 0u);  // exact sizes, budget 4
}

TEST(RunTest, TheSameOptionsGiveTheSameTokens) {
  Options options = tiny();
  options.mode = Mode::kCgtree;

  EXPECT_EQ(run(options).cgtree()->tokens, run(options).cgtree()->tokens);
}

TEST(RunTest, WritesJsonAboutAFilesTrace) {
  const std::string folder = testing::TempDir();
  Options options = tiny();
  options.requests = 2;
  options.trace = folder + "/requests.csv";
  options.json = folder + "/result.json";
  std::ofstream(*options.trace) << "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                   "2023-11-16 18:15:46.6805900,374,44\n"
                                   "2023-11-16 18:15:46.9951690,2,3\n"
                                   "2023-11-16 18:15:50.9951690,396,109\n";

  run(options);

  const auto json = nlohmann::json::parse(std::ifstream(*options.json));
  EXPECT_EQ(json["requests"], 2);
  EXPECT_EQ(json["tokens"], 47);
  EXPECT_EQ(json["steps"], 44);
  EXPECT_EQ(json["trace"], "requests.csv");
  EXPECT_EQ(json["tokens_equal"], true);
}

TEST(RunTest, AModelTooLargeIsRefusedBeforeItIsAllocated) {
  Options options = tiny();
  options.model = named_config("8b");
  options.model.layers = 1000;
  options.context = 1'000'000;
  options.max_batch = 4096;

  try {
    run(options);
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.message()).find("the model needs"), std::string::npos);
  }
}

}  // namespace
}  // namespace cgtree::serve
