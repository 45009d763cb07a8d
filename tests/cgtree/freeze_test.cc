// freeze(): recordings go on replaying, nothing new is recorded, and calls without a recording
// report it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cgtree/steps.h"
#include "extensions/sizes/precapture.h"
#include "extensions/watch/monitor.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class FreezeTest : public TreeTest {
 protected:
  using Function = CompiledFunction<Tensor(Tensor)>;

  Function make(CompileOptions options = {}, std::string name = "f") {
    return compile(
        context(), std::move(name), [](Tensor x) { return affine(x, 2, 1); }, std::move(options));
  }
  // Makes a call and checks its values. Returns its outcome.
  CallOutcome call(const Function& f, std::int64_t size) {
    const std::vector<float> x = random_floats(size);
    EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, 2, 1));
    return *f.last_outcome();
  }
  static CallOutcome frozen() { return {Outcome::kRunEagerly, SkipReason::kFrozen}; }
};
CGTREE_ON_ALL_DEVICES(FreezeTest);

TEST_P(FreezeTest, AFrozenFunctionReplaysWhatItHasAndRunsTheRestEagerly) {
  const Function f = make();
  for (const Outcome expected : {Outcome::kWarmUp, Outcome::kRecord})
    EXPECT_EQ(call(f, 10).outcome, expected);
  (void)call(f, 20);  // is warmed up, without a recording
  f.freeze();
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(call(f, 10).outcome, Outcome::kReplay);
    EXPECT_EQ(call(f, 20), frozen());
    EXPECT_EQ(call(f, 30), frozen());
  }
  EXPECT_EQ(f.stats().warm_ups, 2u);
  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(f.stats().skipped(SkipReason::kFrozen), 6u);
  f.unfreeze();
  EXPECT_EQ(call(f, 20).outcome, Outcome::kRecord);
  EXPECT_EQ(call(f, 30).outcome, Outcome::kWarmUp);
}

TEST_P(FreezeTest, AHeldOutputThatNeedsAnotherRecordingRunsEagerlyToo) {
  const Function f = make();
  const std::vector<float> x = random_floats(10);
  for (int i = 0; i < 2; ++i)
    (void)f(tensor({10}, x));
  f.freeze();
  const Tensor held = f(tensor({10}, x));
  EXPECT_EQ(f.last_outcome()->outcome, Outcome::kReplay);
  EXPECT_EQ(call(f, 10), frozen());
  EXPECT_EQ(values(held), affine_of(x, 2, 1));
}

TEST_P(FreezeTest, AFrozenFunctionThrowsIfItIsToldToWithWhatKeepsTheNearestFromFitting) {
  const Function f = make();
  for (int i = 0; i < 2; ++i)
    (void)call(f, 10);
  f.freeze(WhenFrozen::kThrow);
  EXPECT_EQ(call(f, 10).outcome, Outcome::kReplay);
  EXPECT_THAT([&] { (void)f(random_tensor({20})); },
              ThrowsMessage<CaptureError>(HasSubstr("frozen")));
  EXPECT_THAT([&] { (void)f(random_tensor({20})); },
              ThrowsMessage<CaptureError>(HasSubstr("{10}")));
  EXPECT_EQ(f.last_outcome()->outcome, Outcome::kThrow);
}

TEST_P(FreezeTest, ExplainStatsAndTheSnapshotSayThatItIsFrozen) {
  const Function f = make();
  EXPECT_FALSE(f.is_frozen());
  f.freeze();
  EXPECT_TRUE(f.is_frozen());
  const Tensor x = random_tensor({10});
  const Explanation why = f.explain(x);
  EXPECT_EQ(why.outcome, Outcome::kRunEagerly);
  EXPECT_EQ(why.skip_reason, SkipReason::kFrozen);
  EXPECT_EQ(f.stats().frozen, 1u);
  EXPECT_EQ(stats().frozen, 1u);
  EXPECT_THAT(snapshot_json(context()), HasSubstr("\"frozen\": true"));
  f.freeze(WhenFrozen::kThrow);
  EXPECT_EQ(f.explain(x).outcome, Outcome::kThrow);
  f.unfreeze();
  EXPECT_EQ(f.explain(x).outcome, Outcome::kWarmUp);
  EXPECT_EQ(stats().frozen, 0u);
}

TEST_P(FreezeTest, NothingIsEvictedFromAFrozenFunction) {
  make_context({.max_recordings = 2, .at_limit = AtLimit::kEvict});
  const Function f = make();
  const Function g = make({}, "g");
  for (int i = 0; i < 2; ++i)
    (void)call(f, 10);
  f.freeze();
  for (int i = 0; i < 12; ++i)
    (void)call(g, 10 + i / 2);
  EXPECT_EQ(call(f, 10).outcome, Outcome::kReplay);
  EXPECT_GT(g.stats().evictions, 0u);
}

TEST_P(FreezeTest, AFrozenFunctionPadsToALargerRecordingWhereItMay) {
  for (const WhileMissing missing : {WhileMissing::kRecord, WhileMissing::kNextLarger}) {
    const CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); },
                                       {.inputs = {{.dynamic = {{0, "rows"}}}},
                                        .buckets = {{"rows", {4, 8}}},
                                        .while_missing = missing,
                                        .outputs = {{.dynamic = {{0, "rows"}}}}});
    precapture(f, {.sizes = {{"rows", {8}}}, .held_outputs = 0}, [&](const CallSizes& sizes) {
      return std::vector<Tensor>{random_tensor({sizes["rows"]})};
    });
    f.freeze();
    EXPECT_EQ(call(f, 7).outcome, Outcome::kReplay);
    const CallOutcome small = call(f, 3);
    EXPECT_EQ(small,
              missing == WhileMissing::kRecord ? frozen() : (CallOutcome{Outcome::kReplay, {}}));
  }
}

TEST_P(FreezeTest, PrecaptureOfAFrozenFunctionIsRefused) {
  const Function f = make({.inputs = {{.dynamic = {{0, "rows"}}}}, .buckets = {{"rows", {4, 8}}}});
  f.freeze();
  EXPECT_THAT([&] { precapture(f, {}, [](const CallSizes&) { return std::vector<Tensor>(); }); },
              ThrowsMessage<InvalidArgument>(HasSubstr("frozen")));
}

TEST_P(FreezeTest, FrozenStepsRunAsTheyAreOrThrow) {
  Steps steps(context(), "steps");
  const std::vector<float> x = random_floats(10);
  const Tensor memory = tensor({10}, x);
  std::vector<float> expected = x;
  const Binding binding = {reinterpret_cast<const void*>(memory.address()), memory.bytes()};
  const auto step = [&](int key) {
    for (Step step = steps.begin({{"size", key}}, {&binding, 1}); step.must_run(); step.end())
      update(memory, 0.5f, 1);
    expected = affine_of(expected, 0.5f, 1);
    EXPECT_EQ(values(memory), expected);
    return *steps.last_outcome();
  };
  for (int i = 0; i < 2; ++i)
    (void)step(1);
  steps.freeze();
  EXPECT_EQ(step(1).outcome, Outcome::kReplay);
  EXPECT_EQ(step(2), frozen());
  steps.freeze(WhenFrozen::kThrow);
  EXPECT_THROW((void)steps.begin({{"size", 3}}, {&binding, 1}), CaptureError);
  EXPECT_EQ(step(1).outcome, Outcome::kReplay);
  steps.unfreeze();
  EXPECT_EQ(step(2).outcome, Outcome::kWarmUp);
}

}  // namespace
}  // namespace cgtree::testing
