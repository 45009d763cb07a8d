// Soaks: the mix of work, and the definition of growth.
#include "benchmarks/serve/soak.h"

#include <gtest/gtest.h>

#include "benchmarks/serve/run.h"

namespace cgtree::serve {
namespace {

Options tiny() {
  Options options;
  options.device = "host";
  options.requests = 30;
  options.prompt = 6;
  options.policy = std::nullopt;
  options.budget = 2;
  options.soak_seconds = 2;
  options.model = {.layers = 1,
                   .hidden = 16,
                   .heads = 2,
                   .kv_heads = 1,
                   .head_size = 16,
                   .ffn = 16,
                   .vocabulary = 32};
  options.context = 144;
  options.max_batch = 6;
  return options;
}

TEST(SoakTest, MixesShapesEvictionsAndMutationAndFindsNothing) {
  const SoakReport report = run_soak(tiny());

  EXPECT_FALSE(report.failure) << *report.failure;
  ASSERT_EQ(report.contexts.size(), 6u);  // three policies, each with the cache in place and copied
  std::uint64_t evictions = 0, replays = 0;
  for (const SoakedContext& context : report.contexts) {
    evictions += context.stats.evictions;
    replays += context.stats.replays;
    EXPECT_LE(context.stats.kept_recordings, 4u);
  }
  EXPECT_GT(evictions, 0u);
  EXPECT_GT(replays, 0u);
  EXPECT_GT(report.resident.settled, 0u);
  EXPECT_NE(to_table(report).find("every token equal, memory flat"), std::string::npos);
}

TEST(SoakTest, AFailureIsInTheTableAndInTheJson) {
  const SoakReport report{.failure = "tokens differ: here"};

  EXPECT_NE(to_table(report).find("tokens differ: here"), std::string::npos);
  EXPECT_EQ(to_table(report).find("memory flat"), std::string::npos);
  EXPECT_EQ(to_json(report)["failure"], "tokens differ: here");
  EXPECT_TRUE(to_json(SoakReport())["failure"].is_null());
}

TEST(WatchedTest, GrowthCountsFromWhatWasThereWhenAllHadSettled) {
  Watched watched;
  watched.see(100, false);
  watched.see(1000, false);
  EXPECT_FALSE(watched.has_grown(0));

  watched.see(1100, true);
  EXPECT_FALSE(watched.has_grown(0));  // a tenth is permitted
  watched.see(1111, true);
  EXPECT_TRUE(watched.has_grown(0));
  EXPECT_FALSE(watched.has_grown(50));
  watched.see(900, true);
  EXPECT_TRUE(watched.has_grown(0)) << "the most counts";
}

}  // namespace
}  // namespace cgtree::serve
