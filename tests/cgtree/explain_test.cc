// Reports of a context about its calls: explanations before a call, and events as JSON lines in a
// file.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "extensions/ranks/group.h"
#include "extensions/watch/watch.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ExplainTest : public TreeTest {
 protected:
  void TearDown() override {
    TreeTest::TearDown();
    std::filesystem::remove(path_);
  }

  static std::string hex(const Tensor& tensor) { return fmt::format("{:#x}", tensor.address()); }
  std::vector<json> all_lines() {
    std::ifstream file(path_);
    std::vector<json> parsed;
    for (std::string line; std::getline(file, line);)
      parsed.push_back(json::parse(line));
    return parsed;
  }
  // Returns the lines about calls, without the opening of the file and the counters.
  std::vector<json> lines() {
    std::vector<json> parsed = all_lines();
    std::erase_if(parsed, [](const json& line) {
      return line.at("event") == "open" || line.at("event") == "counters";
    });
    return parsed;
  }
  std::vector<std::string> kinds() {
    std::vector<std::string> found;
    for (const json& line : lines())
      found.push_back(line.at("event"));
    return found;
  }

  const std::string path_ =
      std::filesystem::path(::testing::TempDir()) /
      (std::string(::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name() + 8) +
       GetParam().name + ".jsonl");
};
CGTREE_ON_ALL_DEVICES(ExplainTest);

TEST_P(ExplainTest, ExplainSaysWhatACallWouldDoAndDoesNothing) {
  CompiledFunction f = compile(context(), "f", [](Tensor w, Tensor x) { return add(w, x); },
                               {.inputs = {{.name = "weights", .is_static = true}}});
  const Tensor w = random_tensor({2}), other = random_tensor({2}), x = random_tensor({2});

  EXPECT_EQ(f.explain(w, x).outcome, Outcome::kWarmUp);
  EXPECT_EQ(f.explain(w, x).outcome, Outcome::kWarmUp);
  (void)f(w, x);
  EXPECT_EQ(f.explain(w, x).outcome, Outcome::kRecord);
  EXPECT_TRUE(f.explain(w, x).mismatches.empty());
  (void)f(w, x);
  EXPECT_EQ(f.explain(w, x).outcome, Outcome::kReplay);
  EXPECT_EQ(f.explain(w, x).node, 1u);

  const Explanation moved = f.explain(other, x);
  EXPECT_EQ(moved.outcome, Outcome::kRecord);
  EXPECT_THAT(moved.mismatches, ElementsAre(Mismatch{Mismatch::Kind::kStaticAddress, 0, "weights",
                                                     hex(w), hex(other)}));
  EXPECT_THAT(to_string(moved), HasSubstr("static input 0 'weights'"));
  EXPECT_EQ(f.stats().calls, 2u);
}

TEST_P(ExplainTest, ExplainNamesAnOutputThatIsInTheWay) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  (void)f(random_tensor({2}));
  const Tensor held = f(random_tensor({2}));

  const Explanation explanation = f.explain(random_tensor({2}));

  EXPECT_EQ(explanation.outcome, Outcome::kRecord);
  ASSERT_EQ(explanation.mismatches.size(), 1u);
  EXPECT_EQ(explanation.mismatches[0].kind, Mismatch::Kind::kFootprint);
  EXPECT_THAT(to_string(explanation), HasSubstr("output 0 of 'f'"));
}

TEST_P(ExplainTest, ExplainNamesTheReasonToRunEagerlyOrToThrow) {
  CompiledFunction off =
      compile(context(), "off", [](Tensor x) { return affine(x, 2, 0); }, {.enabled = false});
  CompiledFunction strict =
      compile(context(), "strict", [](Tensor x, Tensor y) { return add(x, y); },
              {.inputs = {{.is_mutated = true}}, .require_graph = true});

  EXPECT_EQ(off.explain(random_tensor({2})).outcome, Outcome::kRunEagerly);
  EXPECT_EQ(off.explain(random_tensor({2})).skip_reason, SkipReason::kDisabled);
  const Tensor x = random_tensor({2});
  EXPECT_EQ(strict.explain(x, x).outcome, Outcome::kThrow);
  EXPECT_EQ(strict.explain(x, x).skip_reason, SkipReason::kOverlappingInputs);
}

TEST_P(ExplainTest, ExplainRefusesInputsThatACallWouldRefuse) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  EXPECT_THROW((void)f.explain(Tensor()), InvalidArgument);
}

// Rows 57 rerecording_logs_reason and 77: the number of copied inputs is in the event.
// Acceptance: trees 57, 77.
TEST_P(ExplainTest, EventsGoToAFileAsLinesOfJson) {
  make_context({.extensions = {watch({.event_file = path_})}});
  CompiledFunction f =
      compile(context(), "f", [](Tensor w, Tensor x) { return add(w, x); },
              {.inputs = {{.name = "weights", .is_static = true}}, .max_recordings = 2});
  const Tensor w[] = {random_tensor({2}), random_tensor({2}), random_tensor({2})};
  for (const int i : {0, 0, 0, 1, 2})
    (void)f(w[i], random_tensor({2}));

  EXPECT_THAT(kinds(), ElementsAre("warm_up", "record", "record", "skip"));
  const json first = lines()[1];
  EXPECT_EQ(first["function"], "f");
  EXPECT_EQ(first["copied_inputs"], 1);
  EXPECT_EQ(first["graph_nodes"], 2);
  EXPECT_TRUE(first["cause"]["changes"].empty());
  const json again = lines()[2];
  EXPECT_EQ(again["cause"]["changes"][0]["name"], "weights");
  EXPECT_EQ(again["cause"]["changes"][0]["kind"], "static_address");
  EXPECT_EQ(again["cause"]["changes"][0]["recorded"], hex(w[0]));
  EXPECT_EQ(again["cause"]["changes"][0]["given"], hex(w[1]));
  EXPECT_EQ(lines()[3]["reason"], "function_limit");
}

TEST_P(ExplainTest, ReplaysAreInTheFileOnRequest) {
  make_context({.extensions = {watch({.event_file = path_, .event_file_has_replays = true})}});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (int call = 0; call < 4; ++call)
    (void)f(random_tensor({2}));

  EXPECT_THAT(kinds(), ElementsAre("warm_up", "record", "replay", "replay"));
}

TEST_P(ExplainTest, EveryLineSaysWhichContextOfWhichProcessItIsOf) {
  make_context({.name = "decode \"1\"", .extensions = {watch({.event_file = path_})}});
  (void)compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); })(random_tensor({2}));
  make_context({.extensions = {watch({.event_file = path_, .event_file_has_replays = true})}});

  const std::vector<json> all = all_lines();
  ASSERT_EQ(all.size(), 4u);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i]["context"], i < 3 ? "decode \"1\"" : to_string(device()));
    EXPECT_EQ(all[i]["process"], getpid());
  }
  EXPECT_EQ(all[0]["event"], "open");
  EXPECT_EQ(all[0]["device"], to_string(device()));
  EXPECT_EQ(all[0]["has_replays"], false);
  EXPECT_TRUE(all[0]["host"].is_string());
  EXPECT_FALSE(all[0].contains("rank"));
  EXPECT_EQ(all[3]["has_replays"], true);
}

TEST_P(ExplainTest, TheFileOfARankSaysWhichItIs) {
  const auto groups = make_thread_groups(1);
  make_context({.group = std::shared_ptr<Group>(groups[0].get(), [](auto*) {}),
                .extensions = {watch({.event_file = path_})}});
  EXPECT_EQ(all_lines()[0]["rank"], 0);
  EXPECT_EQ(all_lines()[0]["ranks"], 1);
}

TEST_P(ExplainTest, EventsOfCallsSayHowLongTheyTook) {
  make_context({.extensions = {watch({.event_file = path_, .event_file_has_replays = true})}});
  const auto wait = [](Tensor x) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return affine(x, 2, 0);
  };
  CompiledFunction f = compile(context(), "f", wait);
  CompiledFunction off = compile(context(), "off", wait, {.enabled = false});
  const auto begin = std::chrono::steady_clock::now();
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({2}));
  (void)off(random_tensor({2}));
  const std::chrono::duration<double, std::micro> all = std::chrono::steady_clock::now() - begin;

  double sum = 0;
  for (const json& line : lines()) {
    const double us = line["us"];
    if (line["event"] != "replay") {
      EXPECT_GE(us, 2000) << line;
    }
    EXPECT_GT(us, 0) << line;
    sum += us;
  }
  EXPECT_LE(sum, all.count());
  EXPECT_THAT(kinds(), ElementsAre("warm_up", "record", "replay", "skip"));
}

TEST_P(ExplainTest, CountersSayWhatTheContextHoldsAfterACallThatDidNotReplay) {
  make_context({.extensions = {watch({.event_file = path_, .event_file_has_replays = true})}});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  std::vector<Tensor> held;
  for (int call = 0; call < 3; ++call) {
    held.push_back(f(random_tensor({2})));
    if (call == 0) held.clear();
  }
  held.push_back(f(random_tensor({2})));
  held.erase(held.begin(), held.begin() + 2);
  held.push_back(f(random_tensor({2})));

  std::vector<json> counters = all_lines();
  std::erase_if(counters, [](const json& line) { return line["event"] != "counters"; });
  ASSERT_EQ(counters.size(), 4u) << "one for the warm-up, three for recordings";
  const ContextStats stats = context().stats();
  const json& last = counters.back();
  EXPECT_EQ(last["recordings"], stats.kept_recordings);
  EXPECT_EQ(last["graph_bytes"], stats.graph_bytes);
  std::size_t pools = 0;
  for (const auto& [region, bytes] : last["pool_bytes"].items())
    pools += bytes.get<std::size_t>();
  EXPECT_EQ(pools, stats.pool_reserved_bytes);
  EXPECT_EQ(counters[0]["live_outputs"], 1);
  const json replay = lines().back();
  EXPECT_EQ(replay["event"], "replay");
  EXPECT_EQ(replay["live_outputs"], held.size());
  EXPECT_EQ(replay["live_bytes"], stats.pool_live_bytes);
}

TEST_P(ExplainTest, EventsOfCallsSayWhatIsPadded) {
  make_context({.extensions = {watch({.event_file = path_, .event_file_has_replays = true})}});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); },
                               {.inputs = {{.dynamic = {{0, "n"}}}},
                                .buckets = {{"n", {4, 8}}},
                                .outputs = {{.dynamic = {{0, "n"}}}}});
  for (const std::int64_t size : {3, 3, 2, 9})
    (void)f(random_tensor({size}));

  EXPECT_THAT(kinds(), ElementsAre("warm_up", "record", "replay", "skip"));
  const std::vector<json> all = lines();
  EXPECT_EQ(all[0]["axes"], (json{{"n", {{"actual", 3}, {"padded", 4}}}}));
  EXPECT_EQ(all[1]["axes"], (json{{"n", {{"actual", 3}, {"padded", 4}}}}));
  EXPECT_EQ(all[2]["axes"], (json{{"n", {{"actual", 2}, {"padded", 4}}}}));
  EXPECT_EQ(all[3]["axes"], (json{{"n", {{"actual", 9}, {"padded", 9}}}}));
}

TEST_P(ExplainTest, ASkipIsWrittenWhenItHasEndedAndOnceIfItThrows) {
  make_context({.extensions = {watch({.event_file = path_})}});
  bool throws = false;
  CompiledFunction off = compile(context(), "off",
                                 [&](Tensor x) {
                                   EXPECT_EQ(lines().size(), throws ? 1u : 0u);
                                   if (throws) throw std::runtime_error("not today");
                                   return affine(x, 2, 0);
                                 },
                                 {.enabled = false});
  (void)off(random_tensor({2}));
  throws = true;
  EXPECT_THROW((void)off(random_tensor({2})), std::runtime_error);
  EXPECT_THAT(kinds(), ElementsAre("skip", "failure"));
}

TEST_P(ExplainTest, FailuresAndEvictionsAreEvents) {
  make_context({.extensions = {watch({.event_file = path_})}});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); },
                               {.max_recordings = 1, .at_limit = AtLimit::kEvict});
  CompiledFunction bad = compile(context(), "bad", [](Tensor) -> Tensor {
    throw std::runtime_error("not today \xff");  // not UTF-8: the line must still be written
  });
  for (const std::int64_t size : {2, 2, 3, 3})
    (void)f(random_tensor({size}));
  EXPECT_THROW((void)bad(random_tensor({2})), std::runtime_error);

  EXPECT_THAT(kinds(), ElementsAre("warm_up", "record", "warm_up", "evict", "record", "failure"));
  EXPECT_THAT(std::string(lines()[5]["what"]), HasSubstr("not today"));
}

TEST_P(ExplainTest, AnEventFileThatCannotBeOpenedIsRefused) {
  try {
    make_context({.extensions = {watch({.event_file = "/no/such/folder/events.jsonl"})}});
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(std::string(error.message()), HasSubstr("/no/such/folder/events.jsonl"));
  }
}

TEST_P(ExplainTest, AFullDiskLosesLinesAndNoCalls) {
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel level, const std::string& line) {
    if (level >= LogLevel::kWarn) warnings.push_back(line);
  });
  make_context({.extensions = {watch({.event_file = "/dev/full"})}});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3);
    EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 2, 0));
  }
  set_log_sink(nullptr);

  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("events_lost file=\"/dev/full\""));
}

TEST_P(ExplainTest, TheLogNamesInOneLineWhyAFunctionIsRecordedAgain) {
  std::vector<std::string> lines;
  set_log_level(LogLevel::kDebug);
  set_log_sink([&](LogLevel, const std::string& line) {
    if (line.starts_with("record function=")) lines.push_back(line);
  });
  make_context({});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (const int size : {3, 3, 5, 5})
    f(tensor({size}, random_floats(size)));
  set_log_sink(nullptr);
  set_log_level(LogLevel::kWarn);

  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], Not(HasSubstr("what=")));
  EXPECT_THAT(lines[1], AllOf(HasSubstr("what=\"input 0"), HasSubstr("{3}"), HasSubstr("{5}"),
                              Not(HasSubstr("to replay"))));
}

}  // namespace
}  // namespace cgtree::testing
