// The whole job in process: a tiny model and trace in both modes on the host device.
#include "examples/serve/run.h"

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
  options.sizes = {
      .layers = 2, .hidden = 16, .heads = 2, .vocabulary = 31, .context = 12, .slots = 5};
  return options;
}

TEST(RunTest, BothModesAgreeAndNearlyEveryStepReplays) {
  const Report report = run(tiny());

  EXPECT_FALSE(report.difference);
  ASSERT_TRUE(report.cgtree && report.eager);
  EXPECT_EQ(report.cgtree->steps, report.eager->steps);
  ASSERT_TRUE(report.cgtree->replay_share_after_100);
  EXPECT_GE(*report.cgtree->replay_share_after_100, 0.95);
  EXPECT_EQ(report.eager->stats.replays, 0u);
}

TEST(RunTest, EveryBatchSizeIsRecordedOnceAndNothingIsSkipped) {
  const Report report = run(tiny());

  EXPECT_EQ(report.cgtree->stats.recordings, 4u);  // buckets 1, 2, 4 and 5
  EXPECT_EQ(report.cgtree->stats.skipped(), 0u);
  EXPECT_GT(report.cgtree->pool_bytes, 0u);
}

TEST(RunTest, TheSameOptionsGiveTheSameTokens) {
  Options options = tiny();
  options.mode = Mode::kCgtree;

  EXPECT_EQ(run(options).cgtree->tokens, run(options).cgtree->tokens);
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
  EXPECT_EQ(json["steps"], 6 + 44 - 1);
  EXPECT_EQ(json["trace"], "requests.csv");
  EXPECT_EQ(json["tokens_equal"], true);
}

TEST(RunTest, AModelTooLargeIsRefusedBeforeItIsAllocated) {
  Options options = tiny();
  options.sizes = {.layers = 1000,
                   .hidden = 65'536,
                   .heads = 2,
                   .vocabulary = 1'000'000,
                   .context = 1'000'000,
                   .slots = 4096};

  try {
    run(options);
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.message()).find("the model needs"), std::string::npos);
  }
}

}  // namespace
}  // namespace cgtree::serve
