// Times of replays on the device: the choice of replays, the moment of reading, and the reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "extensions/watch/monitor.h"
#include "extensions/watch/watch.h"
#include "tests/support/exposition.h"
#include "tests/support/gate.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ReplayTimesTest : public TreeTest {
 protected:
  auto compile_double(std::string name) {
    return compile(context(), std::move(name), [](const Tensor& x) { return affine(x, 2, 0); });
  }
  // A timed replay reads the times of replays that have ended, its own included.
  void call_and_wait(auto& f, const Tensor& x) {
    (void)f(x);
    context().synchronize();
  }
  ReplayTimes times_of(std::string_view function) {
    for (const FunctionMetrics& one : metrics_of(context()).functions)
      if (one.function == function) return one.replay_times;
    return {};
  }
};

TEST_P(ReplayTimesTest, EveryNthReplayOfEachRecordingIsTimed) {
  make_context({.extensions = {watch({.time_every_nth_replay = 3})}});
  auto f = compile_double("f");
  const Tensor small = random_tensor({2});
  const Tensor large = random_tensor({5});
  for (int call = 0; call < 2 + 7; ++call)  // 7 replays: the 3rd and the 6th
    call_and_wait(f, small);
  for (int call = 0; call < 2 + 5; ++call)  // 5 replays: the 3rd
    call_and_wait(f, large);
  EXPECT_GE(times_of("f").count, 2u);
  EXPECT_LE(times_of("f").count, 3u);

  call_and_wait(f, large);  // the 6th
  EXPECT_EQ(f.stats().replays, 13u);

  const ReplayTimes times = times_of("f");
  EXPECT_GE(times.count, 3u);
  EXPECT_LE(times.count, 4u);
  EXPECT_EQ(times.found_idle, times.count);
  EXPECT_GT(times.device.count(), 0);
  EXPECT_LE(times.device_min, times.device_max);
  EXPECT_LE(times.device_max, times.device);
  EXPECT_GE(times.device, times.count * times.device_min);
  EXPECT_GT(times.host.count(), 0);
  EXPECT_EQ(std::accumulate(times.histogram.begin(), times.histogram.end(), std::uint64_t{0}),
            times.count);
}

TEST_P(ReplayTimesTest, WithoutTheOptionNoneIsTimed) {
  auto f = compile_double("f");
  const Tensor x = random_tensor({3});
  for (int call = 0; call < 6; ++call)
    call_and_wait(f, x);

  EXPECT_EQ(f.stats().replays, 4u);
  EXPECT_EQ(times_of("f").count, 0u);
  EXPECT_THAT(metrics_text(context()), Not(HasSubstr("cgtree_replay_device_seconds_count")));
  EXPECT_THAT(snapshot_json(context()), Not(HasSubstr("replay_times")));
}

TEST_P(ReplayTimesTest, ResultsAreThoseOfReplaysThatAreNotTimed) {
  make_context({.extensions = {watch({.time_every_nth_replay = 1})}});
  auto f = compile_double("f");
  for (int call = 0; call < 8; ++call) {
    const std::vector<float> x = random_floats(3);
    EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 2, 0)) << call;
  }
  EXPECT_EQ(f.stats().replays, 6u);
}

TEST_P(ReplayTimesTest, MetricsAndSnapshotHaveTheTimes) {
  make_context({.name = "timed", .extensions = {watch({.time_every_nth_replay = 1})}});
  auto f = compile_double("f");
  const Tensor x = random_tensor({3});
  for (int call = 0; call < 2 + 4; ++call)
    call_and_wait(f, x);

  const auto count = static_cast<double>(times_of("f").count);
  EXPECT_GE(count, 3);
  const Exposition page = parse_exposition(metrics_text(context()));
  const auto of = [&](const std::string& family, const std::string& labels = "") {
    return page[family + "{context=\"timed\",function=\"f\"" + labels + "}"];
  };
  EXPECT_EQ(of("cgtree_replay_device_seconds_count"), count);
  EXPECT_EQ(of("cgtree_replay_device_seconds_bucket", ",le=\"+Inf\""), count);
  EXPECT_GT(of("cgtree_replay_device_seconds_sum"), 0);
  EXPECT_GT(of("cgtree_replay_host_seconds_total"), 0);
  EXPECT_EQ(of("cgtree_replays_that_found_the_stream_idle_total"), count);

  const auto snapshot = nlohmann::json::parse(snapshot_json(context()));
  ASSERT_EQ(snapshot["replay_times"].size(), 1u);
  EXPECT_EQ(snapshot["replay_times"][0]["function"], "f");
  EXPECT_EQ(snapshot["replay_times"][0]["count"], count);
  EXPECT_EQ(snapshot["replay_times"][0]["device_ns"], times_of("f").device.count());
  EXPECT_GT(snapshot["replay_times"][0]["eager_ns"], 0);
  EXPECT_EQ(snapshot["replay_times"][0]["eager_ns"], times_of("f").eager.count());
}

// The file has each timed replay, except one that is still running when the context ends.
TEST_P(ReplayTimesTest, TheEventFileHasEachThatWasTimed) {
  const std::string path = ::testing::TempDir() + "/replay_times.jsonl";
  std::filesystem::remove(path);
  make_context({.extensions = {watch({.event_file = path, .time_every_nth_replay = 2})}});
  {
    auto f = compile_double("f");
    const Tensor x = random_tensor({3});
    for (int call = 0; call < 2 + 5; ++call)
      call_and_wait(f, x);
  }
  make_context({});  // the last time is read when the context ends

  std::ifstream file(path);
  std::vector<nlohmann::json> timed;
  for (std::string line; std::getline(file, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event["event"] == "device_time") timed.push_back(event);
  }
  ASSERT_EQ(timed.size(), 2u);
  for (const nlohmann::json& event : timed) {
    EXPECT_EQ(event["function"], "f");
    EXPECT_GT(event["node"], 0);
    EXPECT_GT(event["us"], 0);
    EXPECT_GT(event["host_us"], 0);
    EXPECT_EQ(event["found_idle"], true);
    EXPECT_GT(event["began_us"], 0);
  }
  EXPECT_LE(timed[0]["began_us"], timed[1]["began_us"]);
}

CGTREE_ON_ALL_DEVICES(ReplayTimesTest);

class ReplayTimesBehindWorkTest : public ReplayTimesTest {};

TEST_P(ReplayTimesBehindWorkTest, NoCallWaitsForATimeAndNoneIsReadBeforeItIsThere) {
  make_context({.extensions = {watch({.time_every_nth_replay = 1})}});
  auto f = compile_double("f");
  const Tensor x = random_tensor({3});
  Tensor held;
  for (int call = 0; call < 6; ++call) {
    held = f(x);
    context().synchronize();
  }
  constexpr std::uint64_t kMany = 100;  // more times than are kept
  const ReplayTimes before = times_of("f");
  const std::uint64_t replays = f.stats().replays;
  {
    const Gate gate(context().stream());
    for (std::uint64_t call = 0; call < kMany; ++call)
      held = f(x);
    EXPECT_TRUE(gate.is_closed());
    EXPECT_EQ(f.stats().replays, replays + kMany);
    EXPECT_LE(times_of("f").count, before.count + 1);  // the last before the gate
  }
  context().synchronize();
  call_and_wait(f, x);

  const ReplayTimes times = times_of("f");
  EXPECT_GT(times.count, before.count + 10);
  EXPECT_LT(times.count, before.count + kMany);
}

INSTANTIATE_TEST_SUITE_P(Devices, ReplayTimesBehindWorkTest,
                         ::testing::ValuesIn(devices_that_work_later()), device_name);

TEST(ReplayTimesTextTest, BucketsAreCumulative) {
  ContextMetrics metrics;
  metrics.context = "a";
  FunctionMetrics& one = metrics.functions.emplace_back();
  one.function = "f";
  one.replay_times.count = 4;
  one.replay_times.device = std::chrono::microseconds(2'500'000);
  one.replay_times.histogram.front() = 1;
  one.replay_times.histogram[2] = 2;
  one.replay_times.histogram.back() = 1;
  const Exposition page =
      parse_exposition(metrics_text(std::span<const ContextMetrics>(&metrics, 1)));
  const auto bucket = [&](const std::string& bound) {
    return page["cgtree_replay_device_seconds_bucket{context=\"a\",function=\"f\",le=\"" + bound +
                "\"}"];
  };
  EXPECT_EQ(bucket("5e-06"), 1);
  EXPECT_EQ(bucket("1e-05"), 1);
  EXPECT_EQ(bucket("2.5e-05"), 3);
  EXPECT_EQ(bucket("1"), 3);
  EXPECT_EQ(bucket("+Inf"), 4);
  EXPECT_EQ(page["cgtree_replay_device_seconds_sum{context=\"a\",function=\"f\"}"], 2.5);
}

}  // namespace
}  // namespace cgtree::testing
