// The table and the JSON of a report, differences, percentiles, and files that are written
// completely or not at all.
#include "benchmarks/serve/report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "base/error.h"

namespace cgtree::serve {
namespace {

Served served(std::uint64_t replays) {
  Served result;
  result.tokens = {{1, 2, 3}};
  result.generated = 3;
  result.steps = 5;
  result.seconds = 0.5;
  result.context.replays = result.decode.replays = replays;
  result.context.calls = result.decode.calls = 5;
  result.context.skips[static_cast<std::size_t>(SkipReason::kDisabled)] = 5 - replays;
  result.context.pool_reserved_bytes = 4096;
  result.decode_work = {.rows = 8, .padded = 1};
  result.replay_share_after_100 = 0.75;
  return result;
}

Report report_of_both() {
  Report report{.device = {Device::host(), "a host", 0}};
  report.requests = 1;
  report.eager = served(0);
  report.runs = {{.policy = Policy::kBuckets, .budget = 8, .served = served(4)}};
  return report;
}

TEST(ReportTest, JsonHoldsEveryPromisedKey) {
  const auto json = to_json(report_of_both());

  for (const char* key : {"device", "device_name", "driver_version", "driver", "commit", "command",
                          "model", "requests", "tokens", "steps", "tokens_equal", "recordings",
                          "replays", "skips", "pool_bytes", "replay_share_after_100"})
    EXPECT_TRUE(json.contains(key)) << key;
  for (const char* mode : {"eager", "cgtree"}) {
    for (const char* key : {"tokens_per_second", "host_us_per_step", "step_us_p50", "step_us_p99"})
      EXPECT_TRUE(json[mode].contains(key)) << mode << "." << key;
  }
}

TEST(ReportTest, CountersAreThoseOfCgtree) {
  const auto json = to_json(report_of_both());

  EXPECT_EQ(json["replays"], 4);
  EXPECT_EQ(json["skips"]["disabled"], 1);
  EXPECT_EQ(json["tokens_equal"], true);
  EXPECT_EQ(json["eager"]["tokens_per_second"], 6.0);
}

TEST(ReportTest, EqualityIsUnknownWhenOneModeWasServed) {
  Report report = report_of_both();
  report.runs.clear();

  EXPECT_TRUE(to_json(report)["tokens_equal"].is_null());
  EXPECT_FALSE(to_json(report).contains("cgtree"));
}

TEST(ReportTest, ADifferenceIsInTheTableAndInTheJson) {
  Report report = report_of_both();
  report.runs[0].difference = Difference{3, 7, 11, std::nullopt};

  EXPECT_EQ(to_json(report)["tokens_equal"], false);
  EXPECT_NE(to_table(report).find(
                "tokens differ, policy buckets, budget 8: request 3, token 7: 11 eagerly, none "
                "through cgtree"),
            std::string::npos);
}

TEST(ReportTest, EveryPolicyIsInTheTableAndInTheJson) {
  Report report = report_of_both();
  report.runs.push_back({.policy = Policy::kSuggested, .budget = 16, .served = served(5)});

  const auto json = to_json(report);
  ASSERT_EQ(json["policies"].size(), 2u);
  EXPECT_EQ(json["policies"][0]["policy"], "buckets");
  EXPECT_EQ(json["policies"][0]["budget"], 8);
  EXPECT_EQ(json["policies"][0]["replay_share"], 0.8);
  EXPECT_EQ(json["policies"][0]["decode_padded_share"], 0.125);
  for (const char* key :
       {"recordings_made", "recordings_kept", "evictions", "pool_bytes", "graph_bytes",
        "tokens_per_second", "host_us_per_step", "prefill_padded_share", "tokens_equal"})
    EXPECT_TRUE(json["policies"][1].contains(key)) << key;
  const std::string table = to_table(report);
  for (const char* word : {"buckets", "suggested", "80.00 %", "100.00 %", "12.50 %"})
    EXPECT_NE(table.find(word), std::string::npos) << word << "\n" << table;
}

TEST(ReportTest, TheTableNamesOnlySkipsThatHappened) {
  const std::string table = to_table(report_of_both());

  EXPECT_NE(table.find("skips: disabled"), std::string::npos);
  EXPECT_EQ(table.find("skips: nested_call"), std::string::npos);
}

TEST(ReportTest, TheTableSaysWhatTimesMeanOnTheHostDevice) {
  Report report = report_of_both();
  EXPECT_NE(to_table(report).find("include the computation itself"), std::string::npos);

  report.device.device = Device::cuda();
  EXPECT_EQ(to_table(report).find("include the computation itself"), std::string::npos);
}

TEST(DifferenceTest, IsTheFirstTokenThatDiffers) {
  EXPECT_FALSE(find_difference({{1, 2}, {3}}, {{1, 2}, {3}}));

  const auto difference = find_difference({{1, 2}, {3, 4, 5}}, {{1, 2}, {3, 9, 8}});
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->request, 1u);
  EXPECT_EQ(difference->index, 1u);
  EXPECT_EQ(difference->eager, 4);
  EXPECT_EQ(difference->cgtree, 9);
}

TEST(DifferenceTest, AMissingTokenOrRequestDiffers) {
  const auto shorter = find_difference({{1, 2}}, {{1}});
  ASSERT_TRUE(shorter);
  EXPECT_EQ(shorter->index, 1u);
  EXPECT_EQ(shorter->cgtree, std::nullopt);
  EXPECT_TRUE(find_difference({{1}}, {{1}, {2}}));
}

TEST(PercentileTest, IsTheNearestRank) {
  const std::vector<double> values = {5, 1, 4, 2, 3};

  EXPECT_EQ(percentile(values, 50), 3);
  EXPECT_EQ(percentile(values, 99), 5);
  EXPECT_EQ(percentile(values, 20), 1);
  EXPECT_EQ(percentile(values, 20.1), 2);
  EXPECT_EQ(percentile({}, 50), 0);
}

namespace fs = std::filesystem;

class JsonFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  std::string read(const fs::path& path) const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  auto count_files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  fs::path folder_;
};

TEST_F(JsonFileTest, ReplacesTheFileAndLeavesNothingElse) {
  write_whole(folder_ / "r.json", "old");
  write_whole(folder_ / "r.json", "new");

  EXPECT_EQ(read(folder_ / "r.json"), "new");
  EXPECT_EQ(count_files(), 1);
}

TEST_F(JsonFileTest, CheckingAPathLeavesNothingBehind) {
  expect_writable(folder_ / "r.json");

  EXPECT_EQ(count_files(), 0);
}

TEST_F(JsonFileTest, AMissingFolderIsRefused) {
  try {
    expect_writable(folder_ / "missing" / "r.json");
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.message()).find("No such file or directory"), std::string::npos);
  }
}

TEST_F(JsonFileTest, AFolderOrADeviceIsNeverReplaced) {
  EXPECT_THROW(expect_writable(folder_), InvalidArgument);
  EXPECT_THROW(expect_writable("/dev/null"), InvalidArgument);
  EXPECT_THROW(expect_writable(""), InvalidArgument);
}

TEST_F(JsonFileTest, ALinkToNothingIsRefused) {
  fs::create_symlink(folder_ / "missing.json", folder_ / "link.json");

  EXPECT_THROW(expect_writable(folder_ / "link.json"), InvalidArgument);
}

TEST_F(JsonFileTest, ALinkStaysALink) {
  std::ofstream(folder_ / "target.json") << "old";
  fs::create_symlink(folder_ / "target.json", folder_ / "link.json");

  write_whole(folder_ / "link.json", "text");

  EXPECT_TRUE(fs::is_symlink(folder_ / "link.json"));
  EXPECT_EQ(read(folder_ / "target.json"), "text");
}

}  // namespace
}  // namespace cgtree::serve
