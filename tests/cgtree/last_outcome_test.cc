// last_outcome(): the outcome of each call, and the reason if it ran eagerly.
#include <gtest/gtest.h>

#include <stdexcept>

#include "cgtree/steps.h"
#include "cgtree/values/graph_scope.h"
#include "tests/support/core_fixture.h"

namespace cgtree::testing {
namespace {

using LastOutcomeTest = TreeTest;
CGTREE_ON_ALL_DEVICES(LastOutcomeTest);

TEST_P(LastOutcomeTest, ACallTellsWhetherItWarmedUpRecordedOrReplayed) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  EXPECT_FALSE(f.last_outcome());
  for (const Outcome expected :
       {Outcome::kWarmUp, Outcome::kRecord, Outcome::kReplay, Outcome::kReplay}) {
    (void)f(random_tensor({10}));
    EXPECT_EQ(f.last_outcome(), (CallOutcome{expected, {}}));
  }
  (void)f(random_tensor({20}));
  EXPECT_EQ(f.last_outcome(), (CallOutcome{Outcome::kWarmUp, {}}));
}

TEST_P(LastOutcomeTest, ACallThatRunsEagerlyTellsWhy) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); }, {.max_recordings = 0});
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({10}));
  EXPECT_EQ(f.last_outcome(), (CallOutcome{Outcome::kRunEagerly, SkipReason::kFunctionLimit}));
  {
    const NoGraph eager;
    (void)f(random_tensor({10}));
  }
  EXPECT_EQ(f.last_outcome(), (CallOutcome{Outcome::kRunEagerly, SkipReason::kNoGraphScope}));
}

TEST_P(LastOutcomeTest, ACallThatThrowsAndTheNextOneAreToldApart) {
  bool throws = true;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (throws) throw std::runtime_error("no");
    return affine(x, 2, 1);
  });
  EXPECT_THROW((void)f(random_tensor({10})), std::runtime_error);
  EXPECT_EQ(f.last_outcome(), (CallOutcome{Outcome::kThrow, {}}));
  throws = false;
  (void)f(random_tensor({10}));
  EXPECT_EQ(f.last_outcome(), (CallOutcome{Outcome::kWarmUp, {}}));
}

TEST_P(LastOutcomeTest, ANestedCallTellsThatItIsOne) {
  CompiledFunction inner = compile(context(), "inner", [](Tensor x) { return affine(x, 2, 1); });
  CompiledFunction outer = compile(context(), "outer", [&](Tensor x) { return inner(x); });
  (void)outer(random_tensor({10}));
  EXPECT_EQ(inner.last_outcome(), (CallOutcome{Outcome::kRunEagerly, SkipReason::kNestedCall}));
  EXPECT_EQ(outer.last_outcome(), (CallOutcome{Outcome::kWarmUp, {}}));
}

TEST_P(LastOutcomeTest, StepsTellWhatTheLastOneDid) {
  Steps steps(context(), "steps");
  EXPECT_FALSE(steps.last_outcome());
  const Tensor memory = random_tensor({10});
  const Binding binding = {reinterpret_cast<const void*>(memory.address()), memory.bytes()};
  const auto step = [&] {
    for (Step step = steps.begin({{"size", 10}}, {&binding, 1}); step.must_run(); step.end())
      update(memory, 2, 1);
  };
  for (const Outcome expected : {Outcome::kWarmUp, Outcome::kRecord, Outcome::kReplay}) {
    step();
    EXPECT_EQ(steps.last_outcome(), (CallOutcome{expected, {}}));
  }
  (void)steps.begin({{"size", 20}}, {&binding, 1});  // the step is abandoned
  EXPECT_EQ(steps.last_outcome(), (CallOutcome{Outcome::kThrow, {}}));
}

}  // namespace
}  // namespace cgtree::testing
