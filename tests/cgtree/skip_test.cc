// Calls that run eagerly on purpose: right values, a named reason, one warning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cgtree/tree/tree_manager.h"
#include "tests/support/captured_log.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class SkipTest : public TreeTest {
 protected:
  template <typename Function>
  static std::uint64_t skips(const Function& function, SkipReason reason) {
    return function.stats().skips[static_cast<int>(reason)];
  }

  CapturedLog warnings_;
};
CGTREE_ON_ALL_DEVICES(SkipTest);

// Rows 4 mutation_reinplaced and 7 mutation_on_inp, under the policy that skips.
// Acceptance: trees 4, 7.
TEST_P(SkipTest, AMutatedEagerInputRunsEagerlyAndIsWritten) {
  CompiledFunction f = compile(context(), "bump",
                               [](Tensor x) {
                                 update(x, 1, 1);
                                 return affine(x, 2, 0);
                               },
                               {.inputs = {{.name = "state", .is_mutated = true}},
                                .on_mutated_input = OnMutatedInput::kSkip});
  const Tensor x = tensor({2}, std::vector<float>{1, 2});

  for (int call = 1; call <= 4; ++call) {
    const std::vector<float> expected = {1.0f + call, 2.0f + call};
    EXPECT_EQ(values(f(x)), affine_of(expected, 2, 0));
    EXPECT_EQ(values(x), expected);
  }

  EXPECT_EQ(skips(f, SkipReason::kMutatedInput), 4u);
  EXPECT_EQ(manager()->recordings(), 0u);
  ASSERT_EQ(warnings_.lines().size(), 1u);
  EXPECT_THAT(warnings_.lines()[0], HasSubstr("function=bump reason=mutated_input"));
  EXPECT_THAT(warnings_.lines()[0], HasSubstr("input 0 'state'"));
}

// Row 9 mutation_cudagraph_managed_tensors, under the policy that skips: graphed while managed,
// eager once fed a clone.
// Acceptance: trees 9.
TEST_P(SkipTest, AMutatedManagedInputIsGraphed) {
  CompiledFunction make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction bump =
      compile(context(), "bump",
              [](Tensor x) {
                update(x, 1, 1);
                return affine(x, 1, 0);
              },
              {.inputs = {{.is_mutated = true}}, .on_mutated_input = OnMutatedInput::kSkip});

  for (int step = 0; step < 4; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(3);
    const Tensor made = make(tensor({3}, x));
    EXPECT_EQ(values(bump(made)), affine_of(x, 2, 1));
    EXPECT_EQ(values(made), affine_of(x, 2, 1));
  }
  EXPECT_EQ(bump.stats().skipped(), 0u);
  EXPECT_EQ(bump.stats().replays, 2u);

  const Tensor clone = random_tensor({3});
  const std::vector<float> before = values(clone);
  EXPECT_EQ(values(bump(clone)), affine_of(before, 1, 1));
  EXPECT_EQ(skips(bump, SkipReason::kMutatedInput), 1u);
}

// Row 8 mutation_cudagraph_managed_tensors_config: with the support switched off a write into a
// managed input keeps the call from being graphed, and one message says so.
// Acceptance: trees 8.
TEST_P(SkipTest, AMutatedManagedInputRunsEagerlyWhereThePolicySaysSo) {
  CompiledFunction make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction bump = compile(context(), "bump",
                                  [](Tensor x) {
                                    update(x, 1, 1);
                                    return affine(x, 1, 0);
                                  },
                                  {.inputs = {{.name = "state", .is_mutated = true}},
                                   .on_mutated_input = OnMutatedInput::kSkipManagedToo});

  for (int step = 0; step < 4; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(3);
    const Tensor made = make(tensor({3}, x));
    EXPECT_EQ(values(bump(made)), affine_of(x, 2, 1));
    EXPECT_EQ(values(made), affine_of(x, 2, 1));
  }

  EXPECT_EQ(skips(bump, SkipReason::kMutatedInput), 4u);
  EXPECT_EQ(bump.stats().recordings, 0u);
  EXPECT_EQ(make.stats().replays, 2u);
  ASSERT_EQ(warnings_.lines().size(), 1u);
  EXPECT_THAT(warnings_.lines()[0], HasSubstr("input 0 'state'"));
}

TEST_P(SkipTest, AManagedInputThatIsOnlyReadIsGraphedWhereWritesAreNot) {
  CompiledFunction make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction read = compile(context(), "read", [](Tensor x) { return affine(x, 1, 1); },
                                  {.on_mutated_input = OnMutatedInput::kSkipManagedToo});

  for (int step = 0; step < 4; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(3);
    EXPECT_EQ(values(read(make(tensor({3}, x)))), affine_of(x, 2, 1));
  }

  EXPECT_EQ(read.stats().skipped(), 0u);
  EXPECT_GE(read.stats().replays, 1u);
}

// Row 5 multiple_devices_msg: an input elsewhere.
// Acceptance: trees 5.
TEST_P(SkipTest, AnInputOnAnotherDeviceRunsEagerly) {
  CompiledFunction f = compile(context(), "f", [](Tensor x, Tensor) { return affine(x, 2, 0); });
  const Tensor elsewhere = from_host<float>({1}, std::vector<float>{1}, Device::host(1));

  const std::vector<float> x = random_floats(3);
  for (int call = 0; call < 3; ++call) {
    EXPECT_EQ(values(f(tensor({3}, x), elsewhere)), affine_of(x, 2, 0));
  }

  EXPECT_EQ(skips(f, SkipReason::kOtherDevice), 3u);
}

TEST_P(SkipTest, ADisabledFunctionRunsEagerlyInSilence) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); }, {.enabled = false});

  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(3);
    EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 2, 0));
  }

  EXPECT_EQ(skips(f, SkipReason::kDisabled), 3u);
  EXPECT_TRUE(warnings_.lines().empty());
}

// Row 92 fallback_..._too_many_times: at the limit the next change runs eagerly; N stays.
// Acceptance: trees 92.
TEST_P(SkipTest, AtTheLimitOfRecordingsTheNextChangeRunsEagerlyAndOldOnesReplay) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); }, {.max_recordings = 2});

  for (int call = 0; call < 3; ++call) {
    for (const std::int64_t size : {2, 3, 4}) {
      const std::vector<float> x = random_floats(size);
      EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, 2, 0));
    }
  }

  EXPECT_EQ(f.stats().recordings, 2u);
  EXPECT_EQ(f.stats().replays, 2u);
  EXPECT_EQ(skips(f, SkipReason::kFunctionLimit), 2u);
  EXPECT_EQ(warnings_.lines().size(), 1u);
}

TEST_P(SkipTest, TheContextHasALimitOfItsOwn) {
  make_context({.max_recordings = 1});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 3, 0); });

  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(5);
    EXPECT_EQ(values(f(tensor({5}, x))), affine_of(x, 2, 0));
    EXPECT_EQ(values(g(tensor({5}, x))), affine_of(x, 3, 0));
  }

  EXPECT_EQ(f.stats().replays, 2u);
  EXPECT_EQ(skips(g, SkipReason::kContextLimit), 3u);
}

TEST_P(SkipTest, ACallInsideAStepFunctionIsPartOfItsRecording) {
  CompiledFunction inner = compile(context(), "inner", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction outer =
      compile(context(), "outer", [&](Tensor x) { return affine(inner(x), 1, 1); });

  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(5);
    EXPECT_EQ(values(outer(tensor({5}, x))), affine_of(x, 2, 1));
  }

  EXPECT_EQ(outer.stats().replays, 3u);
  EXPECT_EQ(skips(inner, SkipReason::kNestedCall), 2u);
}

// Row 170 cudagraph_or_error.
// Acceptance: trees 170.
TEST_P(SkipTest, WhereAGraphIsRequiredASkipIsAnError) {
  CompiledFunction f = compile(context(), "f",
                               [](Tensor x) {
                                 update(x, 1, 1);
                                 return x;
                               },
                               {.inputs = {{.is_mutated = true}},
                                .require_graph = true,
                                .on_mutated_input = OnMutatedInput::kSkip});
  const Tensor x = random_tensor({2});
  const std::vector<float> before = values(x);

  try {
    (void)f(x);
    FAIL() << "nothing was thrown";
  } catch (const CaptureError& error) {
    EXPECT_THAT(std::string(error.message()), HasSubstr("'f' requires a graph"));
    EXPECT_THAT(std::string(error.message()), HasSubstr("mutated_input"));
  }
  EXPECT_EQ(values(x), before);
}

TEST_P(SkipTest, WorkOnAStreamUnderForeignCaptureJoinsThatGraph) {
  Stream stream(device());
  make_context({.stream = stream.ref()});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  const Tensor x = random_tensor({4});
  for (int call = 0; call < 3; ++call)
    (void)f(x);

  Graph graph;
  {
    Capture capture(stream, CaptureMode::kThreadLocal);
    (void)f(x);
    ASSERT_EQ(capture.end(&graph), Code::kSuccess);
  }

  EXPECT_EQ(graph.node_count(), 1u);
  EXPECT_EQ(skips(f, SkipReason::kForeignCapture), 1u);
  graph = Graph();
  context_.reset();  // before its stream
}

}  // namespace
}  // namespace cgtree::testing
