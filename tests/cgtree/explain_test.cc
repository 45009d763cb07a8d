// What a context says about its calls: explanations beforehand, events in a file of JSON lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Outcome = Explanation::Outcome;
using nlohmann::json;

class ExplainTest : public TreeTest {
 protected:
  void TearDown() override {
    TreeTest::TearDown();
    std::filesystem::remove(path_);
  }

  static std::string hex(const Tensor& tensor) { return fmt::format("{:#x}", tensor.address()); }
  std::vector<json> lines() {
    std::ifstream file(path_);
    std::vector<json> parsed;
    for (std::string line; std::getline(file, line);)
      parsed.push_back(json::parse(line));
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
  CompiledFunction strict = compile(context(), "strict", [](Tensor x) { return affine(x, 2, 0); },
                                    {.inputs = {{.is_mutated = true}},
                                     .require_graph = true,
                                     .on_mutated_input = OnMutatedInput::kSkip});

  EXPECT_EQ(off.explain(random_tensor({2})).outcome, Outcome::kRunEagerly);
  EXPECT_EQ(off.explain(random_tensor({2})).skip_reason, SkipReason::kDisabled);
  EXPECT_EQ(strict.explain(random_tensor({2})).outcome, Outcome::kThrow);
  EXPECT_EQ(strict.explain(random_tensor({2})).skip_reason, SkipReason::kMutatedInput);
}

TEST_P(ExplainTest, ExplainRefusesInputsThatACallWouldRefuse) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  EXPECT_THROW((void)f.explain(Tensor()), InvalidArgument);
}

// Rows 57 rerecording_logs_reason and 77: the number of copied inputs is in the event.
TEST_P(ExplainTest, EventsGoToAFileAsLinesOfJson) {
  make_context({.event_file = path_});
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
  make_context({.event_file = path_, .event_file_has_replays = true});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (int call = 0; call < 4; ++call)
    (void)f(random_tensor({2}));

  EXPECT_THAT(kinds(), ElementsAre("warm_up", "record", "replay", "replay"));
}

TEST_P(ExplainTest, FailuresAndEvictionsAreEvents) {
  make_context({.event_file = path_});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); },
                               {.max_recordings = 1, .at_limit = AtLimit::kEvict});
  CompiledFunction bad = compile(context(), "bad", [](Tensor) -> Tensor {
    throw std::runtime_error("not today \xff");  // not UTF-8: must not lose the line
  });
  for (const std::int64_t size : {2, 2, 3, 3})
    (void)f(random_tensor({size}));
  EXPECT_THROW((void)bad(random_tensor({2})), std::runtime_error);

  EXPECT_THAT(kinds(), ElementsAre("warm_up", "record", "warm_up", "evict", "record", "failure"));
  EXPECT_THAT(std::string(lines()[5]["what"]), HasSubstr("not today"));
}

TEST_P(ExplainTest, AnEventFileThatCannotBeOpenedIsRefused) {
  try {
    make_context({.event_file = "/no/such/folder/events.jsonl"});
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
  make_context({.event_file = "/dev/full"});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3);
    EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 2, 0));
  }
  set_log_sink(nullptr);

  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("events_lost file=\"/dev/full\""));
}

}  // namespace
}  // namespace cgtree::testing
