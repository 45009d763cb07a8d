// Messages about skipped calls: once per function, with the facts that a reader needs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "extensions/watch/watch.h"
#include "tests/support/captured_log.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class AcceptanceMessagesTest : public TreeTest {
 protected:
  void TearDown() override {
    TreeTest::TearDown();
    std::filesystem::remove(path_);
  }

  template <typename Function>
  static std::uint64_t skips(const Function& function, SkipReason reason) {
    return function.stats().skips[static_cast<int>(reason)];
  }
  std::vector<json> events(std::string_view kind) {
    std::ifstream file(path_);
    std::vector<json> found;
    for (std::string line; std::getline(file, line);) {
      json event = json::parse(line);
      if (event.at("event") == kind) found.push_back(std::move(event));
    }
    return found;
  }

  CapturedLog warnings_;
  const std::string path_ =
      std::filesystem::path(::testing::TempDir()) /
      (std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()).substr(0, 20) +
       GetParam().name + "_messages.jsonl");
};
CGTREE_ON_ALL_DEVICES(AcceptanceMessagesTest);

// Row 10 mutation_cudagraph_managed_tensor_warn: the output of a skipped function is an input of
// another.
// Acceptance: trees 10.
TEST_P(AcceptanceMessagesTest, ASkippedProducerIsToldOfOnceAndItsConsumerIsGraphed) {
  CompiledFunction produce = compile(context(), "bump",
                                     [](Tensor x, Tensor) {
                                       update(x, 1, 1);
                                       return affine(x, 2, 0);
                                     },
                                     {.inputs = {{.is_mutated = true}}});
  CompiledFunction consume =
      compile(context(), "consume", [](Tensor x, Tensor made) { return add(x, made); });

  for (int step = 0; step < 3; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(3), y = random_floats(3);
    const std::vector<float> made = affine_of(affine_of(y, 1, 1), 2, 0);
    const Tensor shared = tensor({3}, y);
    const std::vector<float> sum = values(consume(tensor({3}, x), produce(shared, shared)));
    for (std::size_t i = 0; i < sum.size(); ++i)
      EXPECT_EQ(sum[i], x[i] + made[i]);
  }

  ASSERT_EQ(warnings_.lines().size(), 1u);
  EXPECT_THAT(warnings_.lines()[0], HasSubstr("function=bump reason=overlapping_inputs"));
  EXPECT_EQ(consume.stats().skipped(), 0u);
  EXPECT_EQ(consume.stats().replays, 1u);
}

// Row 93 fallback_to_eager_if_recompiling_too_many_times_warn_only_once: one message per function.
// Acceptance: trees 93.
TEST_P(AcceptanceMessagesTest, TwoFunctionsAtTheirLimitsAreToldOfOnceEach) {
  const CompileOptions options{.inputs = {{.is_static = true}}, .max_recordings = 1};
  const auto step = [](Tensor w, Tensor x) { return add(w, x); };
  CompiledFunction f = compile(context(), "f", step, options);
  CompiledFunction g = compile(context(), "g", step, options);
  const Tensor weights[] = {random_tensor({2}), random_tensor({2}), random_tensor({2})};

  for (int round = 0; round < 4; ++round) {
    for (const Tensor& w : weights) {
      context().mark_step();
      (void)f(w, random_tensor({2}));
      context().mark_step();
      (void)g(w, random_tensor({2}));
    }
  }

  EXPECT_GT(skips(f, SkipReason::kFunctionLimit), 2u);
  EXPECT_GT(skips(g, SkipReason::kFunctionLimit), 2u);
  ASSERT_EQ(warnings_.lines().size(), 2u);
  EXPECT_THAT(warnings_.lines()[0], HasSubstr("function=f "));
  EXPECT_THAT(warnings_.lines()[1], HasSubstr("function=g "));
}

// Rows 114 and 115 skip_if_dynamic_shape_limit_reached: sizes are graphed up to the limit, and the
// message at the next size names the limit.
// Acceptance: trees 114.
TEST_P(AcceptanceMessagesTest, TheLimitOfDistinctSizesIsToldWithTheirNumber) {
  make_context({.extensions = {watch({.event_file = path_})}});
  CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); }, {.max_recordings = 3});

  for (const std::int64_t size : {1, 2, 3, 4}) {
    for (int call = 0; call < 3; ++call)
      (void)f(random_tensor({size}));
  }

  EXPECT_EQ(recording_count(), 3u);
  EXPECT_EQ(skips(f, SkipReason::kFunctionLimit), 2u);
  ASSERT_EQ(events("skip").size(), 2u);
  EXPECT_EQ(events("skip")[0]["reason"], "function_limit");
  EXPECT_EQ(events("skip")[0]["recordings"], 3);
  ASSERT_EQ(warnings_.lines().size(), 1u);
  EXPECT_THAT(warnings_.lines()[0], HasSubstr("function=f reason=function_limit recordings=3"));
}

// Row 116 warn_once_if_dynamic_shape_limit_reached.
// Acceptance: trees 116.
TEST_P(AcceptanceMessagesTest, TheLimitOfDistinctSizesIsToldOnce) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); }, {.max_recordings = 2});

  for (int round = 0; round < 3; ++round) {
    for (std::int64_t size = 1; size <= 12; ++size)
      (void)f(random_tensor({size}));
  }

  EXPECT_EQ(warnings_.lines().size(), 1u);
}

// Row 120 graph_partition_log_message: each part has an event with its function, its key and its
// number.
// Acceptance: trees 120.
TEST_P(AcceptanceMessagesTest, EachPartAroundAnEagerGapIsAnEventThatNamesIt) {
  make_context({.extensions = {watch({.event_file = path_})}});
  CompiledFunction before = compile(context(), "before", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction after = compile(context(), "after", [](Tensor x) { return affine(x, 1, 3); });
  for (int step = 0; step < 3; ++step) {
    context().mark_step();
    const Tensor made = before(random_tensor({4}));
    (void)after(context().eager([&] { return affine(made, 5, 1); }));
  }

  const std::vector<json> records = events("record");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0]["function"], "before");
  EXPECT_EQ(records[0]["inputs"], "float32 {4}");
  EXPECT_EQ(records[0]["node"], 1);
  EXPECT_EQ(records[1]["function"], "after");
  EXPECT_EQ(records[1]["node"], 2);
  EXPECT_EQ(records[1]["parent"], 1);
}

// Row 4.3 graph_warn_if_has_zero_nodes.
// Acceptance: graphs graph_warn_if_has_zero_nodes.
TEST_P(AcceptanceMessagesTest, AFunctionThatLaunchesNothingIsToldOfOnce) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return x; });
  CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 2, 0); });

  for (const std::int64_t rows : {2, 3}) {
    for (int call = 0; call < 3; ++call) {
      (void)f(random_tensor({rows}));
      (void)g(random_tensor({rows}));
    }
  }

  EXPECT_EQ(f.stats().recordings, 2u);
  ASSERT_EQ(warnings_.lines().size(), 1u);
  EXPECT_THAT(warnings_.lines()[0], HasSubstr("empty_recording function=f"));
}

}  // namespace
}  // namespace cgtree::testing
