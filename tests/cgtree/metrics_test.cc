// Metrics: other threads scrape contexts while calls go on.
#include "extensions/watch/metrics.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <list>
#include <thread>

#include "extensions/verify/verify.h"
#include "extensions/watch/monitor.h"
#include "tests/support/exposition.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Exposition page_of(const ContextMetrics& metrics) {
  return parse_exposition(metrics_text(std::span<const ContextMetrics>(&metrics, 1)));
}

ContextMetrics some_metrics(std::string name) {
  ContextMetrics metrics;
  metrics.context = std::move(name);
  metrics.device = "host:0";
  FunctionMetrics& one = metrics.functions.emplace_back();
  one.function = "f";
  one.stats.replays = 12'345'678'901'234;
  one.stats.skips[0] = 3;
  metrics.regions.push_back({"output", 4096, 512});
  metrics.record_times = {1, 0, 2};
  metrics.record_times.back() = 1;
  metrics.record_time = std::chrono::microseconds(2'751'500);
  return metrics;
}

TEST(MetricsTextTest, AFamilyIsWrittenOnceWithASampleForEachContext) {
  const ContextMetrics all[] = {some_metrics("a"), some_metrics("b")};
  const Exposition page = parse_exposition(metrics_text(all));

  for (const std::string name : {"a", "b"}) {
    const auto of = [&](const std::string& family, const std::string& labels = "") {
      return page[fmt::format("{}{{context=\"{}\"{}}}", family, name, labels)];
    };
    EXPECT_EQ(of("cgtree_context_info", ",device=\"host:0\""), 1);
    EXPECT_EQ(of("cgtree_calls_total", ",function=\"f\",outcome=\"replay\""), 12'345'678'901'234);
    EXPECT_EQ(of("cgtree_calls_total", ",function=\"f\",outcome=\"skip\""), 3);
    EXPECT_EQ(of("cgtree_skips_total", ",function=\"f\",reason=\"disabled\""), 3);
    EXPECT_EQ(of("cgtree_pool_bytes", ",region=\"output\""), 4096);
    EXPECT_EQ(of("cgtree_pool_allocated_bytes", ",region=\"output\""), 512);
  }
}

TEST(MetricsTextTest, BucketsOfAHistogramAreCumulativeAndEndWithTheCount) {
  const Exposition page = page_of(some_metrics("a"));
  const auto bucket = [&](std::string_view bound) {
    return page[fmt::format("cgtree_record_seconds_bucket{{context=\"a\",le=\"{}\"}}", bound)];
  };
  EXPECT_EQ(bucket("0.001"), 1);
  EXPECT_EQ(bucket("0.0025"), 1);
  EXPECT_EQ(bucket("0.005"), 3);
  EXPECT_EQ(bucket("1"), 3);
  EXPECT_EQ(bucket("2.5"), 3);
  EXPECT_EQ(bucket("+Inf"), 4);
  EXPECT_EQ(page["cgtree_record_seconds_count{context=\"a\"}"], 4);
  EXPECT_EQ(page["cgtree_record_seconds_sum{context=\"a\"}"], 2.7515);
}

TEST(MetricsTextTest, NamesAreEscapedAndMadeUtf8) {
  const auto line_of = [](std::string name) {
    ContextMetrics metrics;
    metrics.context = std::move(name);
    const std::string text = metrics_text(std::span<const ContextMetrics>(&metrics, 1));
    (void)parse_exposition(text);
    const std::size_t begin = text.find("cgtree_live_outputs{");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_EQ(line_of("a\\b\"c\nd"), R"(cgtree_live_outputs{context="a\\b\"c\nd"} 0)");
  EXPECT_EQ(line_of("größe 東京 😀"), "cgtree_live_outputs{context=\"größe 東京 😀\"} 0");
  for (const std::string bad : {"\xff", "\xc0\x80", "\xe0\x80\x80", "\xf0\x80\x80\x80",
                                "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"})
    EXPECT_THAT(line_of(bad), HasSubstr("\xef\xbf\xbd")) << bad;
  EXPECT_EQ(line_of("\xe2\x82z"), "cgtree_live_outputs{context=\"\xef\xbf\xbd\xef\xbf\xbdz\"} 0");
}

TEST(MetricsTextTest, TwoContextsOfOneNameAreRefused) {
  const ContextMetrics all[] = {some_metrics("decode"), some_metrics("decode")};
  EXPECT_THAT([&] { (void)metrics_text(all); },
              ThrowsMessage<InvalidArgument>(HasSubstr("both named \"decode\"")));
}

class MetricsTest : public TreeTest {
 protected:
  using F = CompiledFunction<Tensor(Tensor)>;

  void SetUp() override {
    TreeTest::SetUp();
    if (context_) make_context({.name = "c"});
  }
  Exposition page() { return parse_exposition(metrics_text(context())); }
  static std::string calls(std::string_view function, std::string_view outcome) {
    return fmt::format(R"(cgtree_calls_total{{context="c",function="{}",outcome="{}"}})", function,
                       outcome);
  }
  // Fails if a counter of `before` has decreased or is missing.
  static void expect_no_fall(const Exposition& before, const Exposition& now) {
    for (const auto& [series, value] : before.series) {
      if (!before.is_counter(series)) continue;
      const auto found = now.series.find(series);
      if (found == now.series.end()) {
        ADD_FAILURE() << series << " has gone";
      } else {
        EXPECT_LE(value, found->second) << series;
      }
    }
  }
};
CGTREE_ON_ALL_DEVICES(MetricsTest);

TEST_P(MetricsTest, EachCallIsCountedByItsFunctionAndOutcome) {
  bool throws = false;
  const F f = compile(context(), "f", [&](Tensor x) {
    if (throws) throw std::runtime_error("thrown by the test");
    return affine(x, 2, 1);
  });
  const F eager = compile(context(), "eager", [](Tensor x) { return x; }, {.enabled = false});
  std::vector<Tensor> held;
  for (int call = 0; call < 7; ++call) {
    held.push_back(f(random_tensor({3})));
    held.pop_back();
    (void)eager(random_tensor({2}));
  }
  throws = true;
  EXPECT_THROW((void)f(random_tensor({4})), std::runtime_error);
  held.push_back(f(random_tensor({3})));

  const Exposition now = page();
  EXPECT_EQ(now[calls("f", "warm_up")], 1);
  EXPECT_EQ(now[calls("f", "record")], 1);
  EXPECT_EQ(now[calls("f", "replay")], 6);
  EXPECT_EQ(now[calls("f", "failure")], 1);
  EXPECT_EQ(now[calls("eager", "skip")], 7);
  EXPECT_EQ(now[R"(cgtree_skips_total{context="c",function="eager",reason="disabled"})"], 7);
  EXPECT_EQ(now[R"(cgtree_recordings{context="c",function="f"})"], 1);
  EXPECT_EQ(now[R"(cgtree_record_seconds_count{context="c"})"], 1);
  EXPECT_GT(now[R"(cgtree_record_seconds_sum{context="c"})"], 0);
  EXPECT_EQ(now[R"(cgtree_live_outputs{context="c"})"], 1);
  EXPECT_GT(now[R"(cgtree_pool_bytes{context="c",region="output"})"], 0);
}

TEST_P(MetricsTest, PaddingIsSeenByAxis) {
  const F f = compile(context(), "f", [](Tensor x) { return affine(x, 3, 0); },
                      {.inputs = {{.dynamic = {{0, "n"}}}},
                       .buckets = {{"n", {4, 8}}},
                       .outputs = {{.dynamic = {{0, "n"}}}}});
  for (const std::int64_t size : {2, 4, 4, 5})  // padded to sizes 4, 4, 4 and 8
    (void)f(random_tensor({size}));

  const std::string labels = R"({context="c",function="f",axis="n"})";
  EXPECT_EQ(page()["cgtree_axis_actual_size_total" + labels], 15);
  EXPECT_EQ(page()["cgtree_axis_padded_size_total" + labels], 20);
  EXPECT_NEAR(page()["cgtree_padded_ratio" + labels], 20.0 / 15, 1e-9);
}

TEST_P(MetricsTest, FunctionsOfOneNameAreOneSeries) {
  const F one = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  const F two = compile(context(), "f", [](Tensor x) { return affine(x, 3, 0); });
  for (int call = 0; call < 5; ++call) {
    (void)one(random_tensor({3}));
    (void)two(random_tensor({3}));
  }
  EXPECT_EQ(page()[calls("f", "replay")], 6);
}

TEST_P(MetricsTest, CountersNeverFallWhileFunctionsAndRecordingsComeAndGo) {
  make_context({.name = "c",
                .max_recordings = 3,
                .at_limit = AtLimit::kEvict,
                .extensions = {verify({.every = 3})}});
  std::atomic<bool> ends = false;
  std::atomic<int> rounds = 0;
  std::thread monitor([&] {
    for (Exposition before = page(); !ends; ++rounds) {
      Exposition now = page();
      expect_no_fall(before, now);
      before = std::move(now);
    }
  });
  std::list<F> functions;
  int deviation = 0;
  std::size_t called = 0;
  for (int i = 0; i < 400 || rounds < 20; ++i) {
    if (functions.size() > 3 || (!functions.empty() && random_() % 8 == 0)) functions.pop_front();
    functions.push_back(compile(context(), fmt::format("f{}", random_() % 3),
                                [&](Tensor x) { return affine(x, 2, deviation); },
                                {.inputs = {{.dynamic = {{0, "n"}}}},
                                 .buckets = {{"n", {2, 4, 8}}},
                                 .outputs = {{.dynamic = {{0, "n"}}}}}));
    const std::int64_t size = 1 + static_cast<std::int64_t>(random_() % 8);
    deviation = static_cast<int>(random_() % 2);  // recordings hold an earlier value
    for (int again = 0; again < 6; ++again, ++called) {
      try {
        (void)functions.back()(random_tensor({size}));
      } catch (const VerifyError&) {  // counts as a failure
      }
      deviation += again == 3 ? 1 : 0;
    }
    context().mark_step();
  }
  ends = true;
  monitor.join();
  functions.clear();
  (void)context().trim();

  double sum = 0;
  for (const auto& [series, value] : page().series)
    sum += series.starts_with("cgtree_calls_total") ? value : 0;
  EXPECT_EQ(sum, static_cast<double>(called));
  EXPECT_GT(stats().evictions, 0u);
  EXPECT_GT(stats().differed, 0u);
  EXPECT_EQ(stats().calls, called);
}

TEST_P(MetricsTest, AReplayThatDiffersIsNeverCountedAsOne) {
  make_context({.name = "c", .extensions = {verify({.every = 1})}});
  int scale = 2;
  std::vector<double> seen;
  const F f = compile(context(), "f", [&](Tensor x) {
    seen.push_back(page()[calls("f", "replay")]);
    return affine(x, static_cast<float>(scale), 0);
  });
  for (int call = 0; call < 4; ++call)
    (void)f(random_tensor({3}));
  scale = 3;
  EXPECT_THROW((void)f(random_tensor({3})), VerifyError);
  scale = 2;
  (void)f(random_tensor({3}));

  EXPECT_EQ(page()[calls("f", "replay")], 3);
  EXPECT_EQ(seen, (std::vector<double>{0, 0, 0, 1, 2, 2}));
}

TEST_P(MetricsTest, NamesBeyondALimitShareOneSeries) {
  constexpr int kNames = 1100;
  for (int i = 0; i < kNames; ++i) {
    const F f = compile(context(), fmt::format("f{}", i), [](Tensor x) { return affine(x, 2, 0); });
    (void)f(random_tensor({2}));
  }
  const Exposition now = page();
  EXPECT_EQ(now[calls("f0", "warm_up")], 1);
  EXPECT_EQ(now[calls("", "warm_up")], kNames - 1024);
  EXPECT_FALSE(now.series.contains(calls(fmt::format("f{}", kNames - 1), "warm_up")));
}

TEST_P(MetricsTest, ContextsThatAreServedTogetherNeedNames) {
  Context other(device(), {.name = "other"});
  Context nameless(device());
  const Context* const all[] = {&context(), &other, &nameless};
  const Exposition now = parse_exposition(metrics_text(all));
  const std::string names[] = {"c", "other", to_string(device())};
  for (const std::string& name : names)
    EXPECT_EQ(now[fmt::format("cgtree_live_outputs{{context=\"{}\"}}", name)], 0);
  const Context* const twice[] = {&other, &other};
  EXPECT_THROW((void)metrics_text(twice), InvalidArgument);
}

}  // namespace
}  // namespace cgtree::testing
