// Reports: each advice appears where it helps, with its numbers, and not where it does not.
#include "extensions/watch/report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;
using F = CompiledFunction<Tensor(Tensor)>;

constexpr char kMarkStep[] = "call mark_step() where a step begins";
constexpr char kNothing[] = "advice: nothing to change was found";

class ReportTest : public TreeTest {
 protected:
  void SetUp() override {
    TreeTest::SetUp();
    if (context_) open({});
  }
  void TearDown() override {
    TreeTest::TearDown();
    std::filesystem::remove(path_);
  }
  void open(ContextOptions options) {
    context_.reset();
    std::filesystem::remove(path_);
    options.name = "decode";
    options.event_file = path_;
    options.event_file_has_replays = true;
    make_context(options);
  }
  F function(CompileOptions options = {}, const std::string& name = "f") {
    return compile(
        context(), name, [](Tensor x) { return affine(x, 2, 0); }, std::move(options));
  }
  F padded(std::vector<std::int64_t> buckets) {
    return function({.inputs = {{.dynamic = {{0, "n"}}}},
                     .buckets = {{"n", std::move(buckets)}},
                     .outputs = {{.dynamic = {{0, "n"}}}}});
  }
  void call(const F& f, std::initializer_list<std::int64_t> sizes) {
    for (const std::int64_t size : sizes)
      (void)f(random_tensor({size}));
  }
  std::string of_file() const {
    std::ifstream file(path_);
    std::stringstream text;
    text << file.rdbuf();
    return report_of(text.str());
  }
  // The report of the context, and that of its event file, say it.
  void expect_advised(const std::string& text, const std::string& numbers) {
    for (const std::string& report : {report_now(), of_file()}) {
      EXPECT_THAT(report, HasSubstr(text));
      EXPECT_THAT(report, HasSubstr(numbers));
      EXPECT_LT(report.find(text), report.find(numbers)) << report;
    }
  }
  void expect_not_advised(const std::string& text) {
    EXPECT_THAT(report_now(), Not(HasSubstr(text)));
    EXPECT_THAT(of_file(), Not(HasSubstr(text)));
  }
  std::string report_now() { return report(context()); }

  const std::string path_ =
      std::filesystem::path(::testing::TempDir()) / fmt::format("report_{}.jsonl", GetParam().name);
};
CGTREE_ON_ALL_DEVICES(ReportTest);

TEST_P(ReportTest, ItBeginsWithWhatTheContextCounted) {
  const F f = function();
  const F off = function({.enabled = false}, "off");
  call(f, {2, 2, 2, 2, 3});
  call(off, {2});
  const ContextStats stats = context().stats();
  const std::string expected = fmt::format(
      "context 'decode' on {}: 6 calls, 2 replayed\n"
      "1 recorded, 2 warmed up, 1 ran eagerly, 0 failed, 0 steps\npools {:.1f} MiB, ",
      to_string(device()), static_cast<double>(stats.pool_reserved_bytes) / (1 << 20));
  for (const std::string& report : {report_now(), of_file()}) {
    EXPECT_EQ(report.rfind(expected, 0), 0u) << report;
    EXPECT_THAT(report, HasSubstr("ran eagerly: disabled                       1  'off' 1"));
    EXPECT_THAT(report, HasSubstr("warmed up                                   2  'f' 2"));
  }
}

TEST_P(ReportTest, ASteadyLoopIsAdvisedNothing) {
  const F f = function();
  for (int step = 0; step < 20; ++step) {
    context().mark_step();
    call(f, {4});
  }
  EXPECT_THAT(report_now(), HasSubstr(kNothing));
  EXPECT_THAT(of_file(), HasSubstr(kNothing));
}

TEST_P(ReportTest, AnEmptyContextHasAReport) {
  EXPECT_THAT(report_now(), HasSubstr("0 calls, 0 replayed"));
  EXPECT_THAT(of_file(), HasSubstr(kNothing));
}

TEST_P(ReportTest, MarkStepIsMissedWhereOutputsAreHeldAndItWasNeverCalled) {
  const F f = function();
  std::vector<Tensor> held;
  for (int i = 0; i < 5; ++i)
    held.push_back(f(random_tensor({2})));
  expect_advised(kMarkStep, "3 recordings took ");
  EXPECT_THAT(report_now(), HasSubstr("5 are held now, at least 4 of them of 'f'"));
}

TEST_P(ReportTest, MarkStepIsNotMissedWhereItIsCalledOrNothingIsHeld) {
  const F f = function();
  call(f, {2, 2, 2, 2, 2});
  expect_not_advised("mark_step()");
  std::vector<Tensor> held;
  for (int i = 0; i < 5; ++i) {
    context().mark_step();
    for (int j = 0; j < 2; ++j)
      held.push_back(f(random_tensor({2})));
  }
  expect_not_advised(kMarkStep);
}

TEST_P(ReportTest, OutputsThatAreHeldWithinAStepAreToBeLetGo) {
  const F f = function();
  context().mark_step();
  std::vector<Tensor> held;
  for (int i = 0; i < 5; ++i)
    held.push_back(f(random_tensor({2})));
  expect_advised("'f': let go of outputs before the next call", "3 recordings took ");
}

TEST_P(ReportTest, AStaticInputThatMovesIsToStayOrToBeCopied) {
  const F f = function({.inputs = {{.name = "w", .is_static = true}}});
  std::vector<Tensor> w;
  for (int i = 0; i < 4; ++i) {
    w.push_back(random_tensor({2}));
    for (int j = 0; j < 2; ++j)
      (void)f(w.back());
  }
  expect_advised("'f': keep 'w' at one address", "3 recordings took ");
  EXPECT_THAT(report_now(), HasSubstr("recorded: a static input moved              3  'f' 3"));
  EXPECT_THAT(report_now(), HasSubstr("recorded: its first                         1  'f' 1"));
  EXPECT_THAT(report_now(), HasSubstr("static input 0 'w': 0x"));
}

TEST_P(ReportTest, AStaticInputThatMovedOnceIsNoMatter) {
  const F f = function({.inputs = {{.name = "w", .is_static = true}}});
  const Tensor w[] = {random_tensor({2}), random_tensor({2})};
  for (int i = 0; i < 6; ++i)
    (void)f(w[i > 3]);
  expect_not_advised("at one address");
}

TEST_P(ReportTest, RecordingsThatAreReplayedOftenAreWorthIt) {
  const F f = function({.inputs = {{.name = "w", .is_static = true}}});
  const Tensor w[] = {random_tensor({2}), random_tensor({2}), random_tensor({2})};
  for (int i = 0; i < 60; ++i)
    (void)f(w[i % 3]);
  expect_not_advised("at one address");
}

TEST_P(ReportTest, ALargeInputThatNeverMovedIsToBeDeclaredStatic) {
  const F f = function();
  const Tensor x = random_tensor({2000});
  for (int i = 0; i < 14; ++i)
    (void)f(x);
  const std::string report = report_now();
  EXPECT_THAT(report, HasSubstr("'f': declare input 0 static, if its address stays\n"
                                "   8000 bytes are copied at each replay, and it has not moved in "
                                "12 replays"));
}

TEST_P(ReportTest, AnInputThatMovesOrIsSmallOrReplaysSeldomIsNotToBeStatic) {
  const F moves = function({}, "moves");
  const F is_small = function({}, "is_small");
  const F is_new = function({}, "is_new");
  const F is_static = function({.inputs = {{.is_static = true}}}, "is_static");
  const Tensor large[] = {random_tensor({2000}), random_tensor({2000})};
  const Tensor small = random_tensor({8});
  for (int i = 0; i < 14; ++i) {
    (void)moves(large[i % 2]);
    (void)is_small(small);
    (void)is_static(large[0]);
    if (i < 8) (void)is_new(large[0]);
  }
  expect_not_advised("declare input");
}

TEST_P(ReportTest, SizesThatVaryAreToHaveBuckets) {
  const F f = function();
  call(f, {2, 2, 3, 3, 4, 4, 5, 5});
  expect_advised("'f': pass input 0 as it was recorded, or declare the axis that varies",
                 "3 recordings took ");
}

TEST_P(ReportTest, SizesThatFitTheirBucketsAreLeftAlone) {
  const F f = padded({2, 4, 8, 16});
  call(f, {4, 4, 3, 4, 7, 8, 8, 4, 8, 3, 4, 8, 16, 15, 16, 2, 2, 2});
  EXPECT_THAT(report_now(), HasSubstr("recorded: another shape or type"));
  EXPECT_THAT(report_now(), HasSubstr(kNothing));
  EXPECT_THAT(of_file(), HasSubstr(kNothing));
}

TEST_P(ReportTest, ASizeAboveTheLargestBucketIsToGetOne) {
  const F f = padded({4, 8});
  call(f, {8, 8, 7, 9, 12, 8});
  expect_advised("'f': add a bucket of 12 to axis 'n', whose largest is 8",
                 "2 of 6 calls ran eagerly: ");
}

TEST_P(ReportTest, TheLargestOfManySizesIsKnownHoweverRareItIs) {
  const F f = padded({4});
  for (std::int64_t size = 5; size < 85; ++size)
    call(f, {size, size});
  call(f, {200});
  EXPECT_THAT(report_now(), HasSubstr("'f': add a bucket of 200 to axis 'n', whose largest is 4"));
}

TEST_P(ReportTest, MuchPaddingIsToGetBucketsThatFit) {
  const F f = padded({16});
  call(f, {1, 1, 2, 2, 1, 1, 1, 16});
  expect_advised("'f': give axis 'n' buckets that fit its sizes, such as {1, 2, 16}",
                 "80 % of its padded size is padding: 25 became 128 in 8 calls");
}

TEST_P(ReportTest, PaddingThatNoBucketsAvoidIsLeftAlone) {
  const F f = function({.inputs = {{.dynamic = {{0, "n"}}}},
                        .axes = {{.name = "n", .policy = AxisPolicy::kExact}},
                        .outputs = {{.dynamic = {{0, "n"}}}}});
  call(f, {1, 1, 1, 2, 2, 2});
  expect_not_advised("give axis");
}

TEST_P(ReportTest, CallsAtALimitAreToBeAllowedMore) {
  const F f = function({.max_recordings = 1});
  call(f, {2, 2, 3, 3, 3});
  expect_advised("'f': raise CompileOptions::max_recordings",
                 "2 of 5 calls ran eagerly: the function has as many recordings");
}

TEST_P(ReportTest, WhatTheCallerSwitchedOffIsNotAdvisedOn) {
  const F f = function({.enabled = false});
  call(f, {2, 2, 2});
  EXPECT_THAT(report_now(), HasSubstr(kNothing));
  EXPECT_THAT(of_file(), HasSubstr(kNothing));
}

TEST_P(ReportTest, RecordingsThatAreEvictedInTurnNeedAHigherLimit) {
  const F f = function({.max_recordings = 1, .at_limit = AtLimit::kEvict});
  for (int i = 0; i < 5; ++i)
    call(f, {2, 2, 3, 3});
  expect_advised("'f': raise the limit at which its recordings are evicted",
                 "4 of 5 recordings were evicted");  // before the next one waits
}

TEST_P(ReportTest, AFewEvictionsAreNoMatter) {
  const F f = function({.max_recordings = 1, .at_limit = AtLimit::kEvict});
  call(f, {2, 2, 3, 3, 2, 2});
  expect_not_advised("evicted");
}

TEST_P(ReportTest, CostsAreThoseOfTheRecordings) {
  const F f = function();
  const F g = function({}, "g");
  call(f, {2, 2, 2, 2, 2});
  call(g, {3, 3});
  for (const std::string& report : {report_now(), of_file()}) {
    const std::size_t at = report.find("\n  f  ");
    ASSERT_NE(at, std::string::npos) << report;
    std::istringstream row(report.substr(at + 3, report.find('\n', at + 1) - at - 3));
    std::string name, unit;
    std::uint64_t recordings = 0, replays = 0;
    double ms = 0, mib = 0;
    row >> name >> recordings >> ms >> mib >> unit >> replays;
    EXPECT_EQ(recordings, 1u);
    EXPECT_EQ(replays, 3u);
    EXPECT_GE(ms, 0);
    EXPECT_THAT(report, HasSubstr("\n  g  "));
  }
}

TEST_P(ReportTest, AnEventFileKnowsWhatAnEvictedRecordingWasWorth) {
  const F f = function({.max_recordings = 1, .at_limit = AtLimit::kEvict});
  call(f, {2, 2, 2, 2, 2, 3, 3});
  EXPECT_THAT(of_file(), ::testing::ContainsRegex("\n  f  +2 .* +3\n"));
  EXPECT_THAT(report_now(), ::testing::ContainsRegex("\n  f  +1 .* +0\n"));
}

TEST_P(ReportTest, AnEventFileWithoutReplaysSaysSo) {
  make_context({.event_file = path_ + "2"});
  call(function(), {2, 2, 2, 2});
  std::ifstream file(path_ + "2");
  std::stringstream text;
  text << file.rdbuf();
  std::filesystem::remove(path_ + "2");
  EXPECT_THAT(report_of(text.str()), HasSubstr("0 replayed (not in this file"));
}

// Built of facts: what no test would wait for.

ReportFacts busy_facts() {
  ReportFacts facts{.context = "a\nb", .device = "host:0", .generations = 7};
  for (std::size_t i = 0; i < 40; ++i) {
    FunctionFacts& function = facts.functions.emplace_back();
    function.name = fmt::format("a function with quite a long name, number {}", i);
    for (int reason = 0; reason < kSkipReasonCount; ++reason)
      function.stats.skips[static_cast<std::size_t>(reason)] = 1 + i;
    function.stats.calls = function.stats.skipped();
    facts.recordings.push_back({.function = i, .us = 1000 * i});
  }
  return facts;
}

TEST(ReportTextTest, ItFitsOnAScreenWhateverThereIs) {
  const std::string text = report_text(busy_facts());
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n'));
  EXPECT_LE(lines, kReportLines);
  EXPECT_GE(lines, kReportLines - 4) << "is everything there?";
  std::istringstream each(text);
  for (std::string line; std::getline(each, line);)
    EXPECT_LE(line.size(), 163u);
  EXPECT_THAT(text, HasSubstr("context 'a b' on"));
}

TEST(ReportTextTest, TheCostliestAndTheMostFrequentComeFirst) {
  const std::string text = report_text(busy_facts());
  EXPECT_LT(text.find("a function with quite..."), text.find("advice"));
  EXPECT_THAT(text, HasSubstr("1        39.0"));
  EXPECT_THAT(text, Not(HasSubstr("         1.0")));
  const std::vector<Advice> advices = advise(busy_facts());
  EXPECT_TRUE(std::ranges::is_sorted(advices, std::greater(), &Advice::weight));
  EXPECT_THAT(advices.front().text, HasSubstr("number 39"));
}

TEST(ReportTextTest, NamesAreCutBetweenCharacters) {
  ReportFacts facts{.context = std::string(23, 'a') + "größe größe", .device = "host:0"};
  EXPECT_THAT(report_text(facts), HasSubstr("'" + std::string(21, 'a') + "...'"));
  facts.context = std::string(20, 'a') + "größe größe";
  EXPECT_THAT(report_text(facts), HasSubstr("'" + std::string(20, 'a') + "g...'"));
}

TEST(ReportFactsTest, LinesThatAreNoEventsAreCountedAndLeftOut) {
  const std::string good =
      R"({"event":"warm_up","time_us":1,"context":"a","process":1,"function":"f","us":3})";
  const std::string text = good + "\n# a comment\n[1]\n" + good + "\n{\"event\":\"warm_up\",\"time";
  const std::vector<ReportFacts> facts = read_facts(text);
  ASSERT_EQ(facts.size(), 1u);
  EXPECT_EQ(facts[0].left_out, 3u);
  EXPECT_EQ(facts[0].functions.at(0).stats.warm_ups, 2u);
  EXPECT_THAT(report_of(text), HasSubstr("3 lines are no events"));
}

TEST(ReportFactsTest, EachContextOfAFileHasAReport) {
  std::string text;
  for (const char* name : {"a", "b", "a"})
    text +=
        fmt::format(R"({{"event":"skip","context":"{}","process":1,"function":"f"}})", name) + "\n";
  EXPECT_EQ(read_facts(text).size(), 2u);
  EXPECT_THAT(report_of(text), HasSubstr("context 'b'"));
}

TEST(ReportFactsTest, AnotherTextIsRefused) {
  for (const std::string text :
       {"", "\n\n", "hello", "[]", "3", "{\"schema\":\"other\"}", "\xff\xfe"})
    EXPECT_THAT([&] { (void)report_of(text); },
                ThrowsMessage<InvalidArgument>(HasSubstr("a report is made of")))
        << text;
  EXPECT_THAT([&] { (void)report_of(R"({"schema":"cgtree.snapshot","version":2})"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("version 2 is there")));
}

// Whatever a file holds, there is a report of it or an InvalidArgument.
TEST(ReportFactsTest, FieldsOfOtherTypesAreNoCrash) {
  const std::uint64_t seed = ::testing::UnitTest::GetInstance()->random_seed();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937_64 random(std::random_device{}());
  const nlohmann::json values[] = {nullptr,
                                   true,
                                   -3,
                                   3.5,
                                   "text",
                                   nlohmann::json::array({1, "x"}),
                                   nlohmann::json::object({{"a", 1}}),
                                   1ULL << 63};
  const nlohmann::json event = {{"event", "record"},
                                {"context", "a"},
                                {"process", 1},
                                {"function", "f"},
                                {"node", 3},
                                {"us", 5},
                                {"cause", {{"nearest", 1}, {"changes", {{{"kind", "key"}}}}}},
                                {"axes", {{"n", {{"actual", 3}, {"padded", 4}}}}},
                                {"pool_bytes", {{"output", 1}}},
                                {"reason", "disabled"}};
  const nlohmann::json snapshot = {
      {"schema", "cgtree.snapshot"},
      {"version", 1},
      {"context", "c"},
      {"functions",
       {{{"id", 0},
         {"name", "f"},
         {"skips", {{"disabled", 2}}},
         {"axes",
          {{{"axis", "n"},
            {"actual", 1},
            {"padded", 9},
            {"buckets", {4}},
            {"sizes", {{1, 2}}}}}}}}},
      {"nodes",
       {{{"function_id", 0},
         {"inputs", {{{"treatment", "copied"}, {"bytes", 3}}}},
         {"outputs", {{{"holds", {{"function", "f"}}}, {"slot", 1}}}}}}}};
  for (int round = 0; round < 3000; ++round) {
    nlohmann::json text = round % 2 == 0 ? event : snapshot;
    const nlohmann::json flat = text.flatten();
    auto at = flat.items().begin();
    std::advance(at, static_cast<std::ptrdiff_t>(random() % flat.size()));
    nlohmann::json::json_pointer place(at.key());
    for (std::uint64_t up = random() % 3; up > 0 && !place.empty(); --up)
      place.pop_back();
    text[place] = values[random() % std::size(values)];
    try {
      EXPECT_FALSE(report_of(text.dump()).empty());
    } catch (const InvalidArgument&) {  // it was said
    }
  }
}

}  // namespace
}  // namespace cgtree::testing
