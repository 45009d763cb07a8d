// Eager gaps between calls, and step functions that cannot be captured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cgtree/values/graph_scope.h"
#include "interop/tensor/copy.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class EagerTest : public TreeTest {};
CGTREE_ON_ALL_DEVICES(EagerTest);

// Row 118 graph_partition: a detour between two functions; two recordings, right values in each
// call.
// Acceptance: trees 118.
TEST_P(EagerTest, AnEagerGapBetweenTwoFunctionsLeavesBothGraphed) {
  CompiledFunction before = compile(context(), "before", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction after = compile(context(), "after", [](Tensor x) { return affine(x, 1, 3); });

  for (int step = 0; step < 5; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(4);
    const Tensor made = before(tensor({4}, x));
    const Tensor between = context().eager([&] { return affine(made, 5, 1); });
    EXPECT_EQ(values(after(between)), affine_of(affine_of(affine_of(x, 2, 0), 5, 1), 1, 3));
  }

  EXPECT_EQ(recording_count(), 2u);
  EXPECT_EQ(before.stats().replays, 3u);
  EXPECT_EQ(after.stats().replays, 3u);
}

// Row 132 graph_partition_saved_activation_not_static: outputs of a gap are copied, so they may
// move at each call without a new recording.
// Acceptance: trees 132.
TEST_P(EagerTest, OutputsOfAnEagerGapAreCopiedFromAnyAddress) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  std::vector<Tensor> held;

  for (int step = 0; step < 6; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(300);
    held.push_back(context().eager([&] { return affine(tensor({300}, x), 1, 1); }));
    EXPECT_EQ(values(f(held.back())), affine_of(affine_of(x, 1, 1), 2, 0));
  }

  EXPECT_EQ(f.stats().recordings, 1u);
}

// Rows 14 index_put_boolean_mutation_across_partitions, 142 and 143 skip_cudagraph_unsafe
// _custom_op_mutation(_late_free).
// Acceptance: trees 14, 142.
TEST_P(EagerTest, WritesOfAnEagerGapIntoAnOutputReachTheNextFunction) {
  CompiledFunction make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction use = compile(context(), "use", [](Tensor x) { return affine(x, 3, 0); });

  for (int step = 0; step < 5; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(4);
    Tensor made = make(tensor({4}, x));
    context().eager([&] { update(made, 1, 7); });
    const Tensor used = use(made);
    made = Tensor();
    EXPECT_EQ(values(used), affine_of(affine_of(affine_of(x, 2, 0), 1, 7), 3, 0));
  }

  EXPECT_EQ(use.stats().replays, 3u);
  EXPECT_EQ(recording_count(), 2u);
}

// Row 30 graph_partition_with_memory_plan_reuse: steps around an eager middle that writes into the
// caller's buffer.
// Acceptance: trees 30.
TEST_P(EagerTest, AnEagerGapMayWriteIntoABufferOfTheCallers) {
  const Tensor buffer = random_tensor({4});
  CompiledFunction first = compile(context(), "first", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction last = compile(context(), "last", [](Tensor b) { return affine(b, 3, 1); },
                                  {.inputs = {{.is_static = true}}});

  for (int step = 0; step < 4; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(4);
    const Tensor made = first(tensor({4}, x));
    context().eager([&] { copy(buffer, made); });
    EXPECT_EQ(values(last(buffer)), affine_of(affine_of(x, 2, 0), 3, 1));
  }

  EXPECT_EQ(last.stats().replays, 2u);
}

TEST_P(EagerTest, AnEagerGapReturnsAndThrowsWhatItsBodyDoes) {
  EXPECT_EQ(context().eager([] { return 42; }), 42);
  EXPECT_THROW(context().eager([]() -> int { throw std::runtime_error("no"); }),
               std::runtime_error);

  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  const std::vector<float> x = random_floats(4);
  EXPECT_EQ(values(f(tensor({4}, x))), affine_of(x, 2, 0));
}

TEST_P(EagerTest, ACompiledFunctionInAnEagerGapRunsEagerly) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(4);
    const Tensor y = context().eager([&] { return f(tensor({4}, x)); });
    EXPECT_EQ(values(y), affine_of(x, 2, 0));
  }
  EXPECT_EQ(f.stats().skips[static_cast<int>(SkipReason::kNestedCall)], 3u);
}

// Row 140 skip_cudagraph_unsafe_ops: marked unsafe and not split: a skip, logged once.
// Acceptance: trees 140.
TEST_P(EagerTest, AnEagerGapInsideAStepFunctionKeepsItFromBeingGraphedAndSaysSo) {
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel level, const std::string& line) {
    if (level >= LogLevel::kWarn) warnings.push_back(line);
  });
  CompiledFunction f = compile(
      context(), "f", [&](Tensor x) { return context().eager([&] { return affine(x, 2, 0); }); });
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(4);
    EXPECT_EQ(values(f(tensor({4}, x))), affine_of(x, 2, 0));
  }
  set_log_sink(nullptr);

  EXPECT_EQ(f.stats().skips[static_cast<int>(SkipReason::kCaptureFailed)], 3u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("Context::eager() inside a step function"));
}

TEST_P(EagerTest, AnEagerGapKeepsAFunctionFromBeingGraphedAlsoIfItsErrorWasSwallowed) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const Tensor y = affine(x, 1, 1);
    try {
      context().eager([&] { update(y, 1, -1); });
    } catch (const CaptureError&) {  // as code that only wants to continue
    }
    return y;
  });
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(4);
    EXPECT_EQ(values(f(tensor({4}, x))), x) << call;
  }
  EXPECT_EQ(f.stats().recordings, 0U);
  EXPECT_EQ(f.stats().skipped(SkipReason::kCaptureFailed), 3U);
}

TEST_P(EagerTest, AStepThatRefusesItsCaptureRunsWithoutAGraphAndSaysWhy) {
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    refuse_capture("the engine has grown its workspace");
    return y;
  });
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(4);
    EXPECT_EQ(values(f(tensor({4}, x))), affine_of(x, 2, 0)) << call;
  }
  EXPECT_EQ(f.stats().recordings, 0U);
  EXPECT_EQ(f.stats().skipped(SkipReason::kCaptureFailed), 3U);
  EXPECT_THAT(to_string(f.explain(random_tensor({4}))),
              HasSubstr("the engine has grown its workspace"));
}

// A refusal in a warm-up does not count in the recording.
TEST_P(EagerTest, ARefusalOutsideOfACaptureDoesNothing) {
  refuse_capture("no step");
  int runs = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (++runs == 1) refuse_capture("it is warmed up");
    return affine(x, 2, 0);
  });
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(4);
    EXPECT_EQ(values(f(tensor({4}, x))), affine_of(x, 2, 0)) << call;
  }
  EXPECT_EQ(f.stats().replays, 2U);
}

// Rows 76 incompatible_ops_item, 78 and 80 incompatible_ops_nonzero: found at the first capture,
// named, eager from then on, and the process goes on.
// Acceptance: trees 76, 78, 80.
TEST_P(EagerTest, TheCallThatBrokeACaptureIsNamedEvenWhenItsErrorWasSwallowed) {
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel level, const std::string& line) {
    if (level >= LogLevel::kWarn) warnings.push_back(line);
  });
  CompiledFunction item = compile(context(), "item", [](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    try {
      current_stream().synchronize();
    } catch (const Error&) {  // as code that only wants to continue
    }
    return y;
  });
  CompiledFunction other = compile(context(), "other", [](Tensor x) { return affine(x, 3, 0); });
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(4);
    EXPECT_EQ(values(item(tensor({4}, x))), affine_of(x, 2, 0));
    EXPECT_EQ(values(other(tensor({4}, x))), affine_of(x, 3, 0));
  }
  set_log_sink(nullptr);

  EXPECT_EQ(item.stats().skips[static_cast<int>(SkipReason::kCaptureFailed)], 3u);
  EXPECT_EQ(other.stats().replays, 2u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("synchronize"));
}

}  // namespace
}  // namespace cgtree::testing
