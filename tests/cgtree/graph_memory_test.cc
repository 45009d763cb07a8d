// Memory that the graph of a recording leaves allocated: its lifetime, its accounting, and its
// owner.
#include "tests/cgtree/graph_memory_fixture.h"

#include <gmock/gmock.h>

#include "interop/device/graph.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

CGTREE_ON_ALL_DEVICES(GraphMemoryTest);

TEST_P(GraphMemoryTest, WithoutTheOptionTheStepRunsEagerlyAndExplainNamesIt) {
  Steps steps = make_steps({});
  EXPECT_EQ(call(steps, 2, /*frees_another=*/true), Outcome::kWarmUp);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(call(steps, 2, /*frees_another=*/true), Outcome::kRunEagerly);
  EXPECT_EQ(steps.stats().skipped(SkipReason::kCaptureFailed), 3u);
  const std::string why = to_string(steps.explain({{"draft", 2}}, bindings()));
  EXPECT_THAT(why, HasSubstr("2 allocations and 1 frees"));
  EXPECT_THAT(why, HasSubstr("CompileOptions::keeps_allocations"));
}

TEST_P(GraphMemoryTest, AStepThatFreesAllItAllocatesNeedsNoOption) {
  Steps steps = make_steps({});
  std::vector<Outcome> outcomes;
  for (int i = 0; i < 4; ++i) {
    Step step = steps.begin({}, bindings());
    for (; step.must_run(); step.end()) {
      const StreamRef stream = current_stream();
      check(stream.graphs().free_in_order(stream.handle(), forward(1, step.address(0), true)),
            "free");
    }
    outcomes.push_back(step.outcome());
  }
  EXPECT_EQ(outcomes,
            (std::vector{Outcome::kWarmUp, Outcome::kRecord, Outcome::kReplay, Outcome::kReplay}));
}

TEST_P(GraphMemoryTest, ReplaysWriteTheSameMemoryAndTakeNoMore) {
  Steps steps = make_steps();
  EXPECT_EQ(call(steps, 2, /*frees_another=*/true), Outcome::kWarmUp);
  EXPECT_EQ(call(steps, 2, /*frees_another=*/true), Outcome::kRecord);
  const std::size_t graph_bytes = stats().graph_bytes;
  const std::size_t free_before = free_bytes();
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(call(steps, 2), Outcome::kReplay);
  EXPECT_EQ(stats().graph_bytes, graph_bytes);
  if (is_host()) {
    EXPECT_EQ(free_bytes(), free_before);
  }
}

TEST_P(GraphMemoryTest, MemoryLeftByAGraphCountsAsItsBytes) {
  make_context({.max_graph_bytes = kBytes + kBytes / 2, .at_limit = AtLimit::kEvict});
  Steps steps = make_steps();
  for (const int draft : {1, 2}) {
    EXPECT_EQ(call(steps, draft, /*frees_another=*/true), Outcome::kWarmUp);
    EXPECT_EQ(call(steps, draft, /*frees_another=*/true), Outcome::kRecord);
    EXPECT_GE(stats().graph_bytes, kBytes);
    EXPECT_LT(stats().graph_bytes, 2 * kBytes);
  }
  EXPECT_EQ(recording_count(), 1u);  // two exceed the limit
  EXPECT_EQ(call(steps, 2), Outcome::kReplay);
}

TEST_P(GraphMemoryTest, TheEndOfARecordingFreesWhatItLeft) {
  {
    Steps steps = make_steps();
    EXPECT_EQ(call(steps, 1), Outcome::kWarmUp);
    std::vector<std::size_t> free_afterwards;
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(call(steps, 1), Outcome::kRecord);
      EXPECT_EQ(call(steps, 1), Outcome::kReplay);
      EXPECT_EQ(steps.invalidate(outputs_[1], 1), 1u);
      EXPECT_NE(free(outputs_[1]), Code::kSuccess) << "it was allocated";
      free_afterwards.push_back(free_bytes());
    }
    if (is_host()) {
      EXPECT_EQ(free_afterwards[2], free_afterwards[0]);
    }
    EXPECT_EQ(call(steps, 1), Outcome::kRecord);
  }
  make_context({});
  EXPECT_NE(free(outputs_[1]), Code::kSuccess) << "it was allocated";
}

TEST_P(GraphMemoryTest, MemoryThatEndsDuringACaptureIsFreedAfterIt) {
  Steps steps = make_steps();
  for (int i = 0; i < 3; ++i)
    call(steps, 1);
  Graph graph;
  {
    Capture capture(context().stream(), CaptureMode::kRelaxed);
    EXPECT_EQ(steps.invalidate(outputs_[1], 1), 1u);
    ASSERT_TRUE(ok(capture.end(&graph)));
  }
  EXPECT_EQ(graph.node_count(), 0u);
  EXPECT_EQ(call(steps, 2), Outcome::kWarmUp);
  EXPECT_NE(free(outputs_[1]), Code::kSuccess) << "it was allocated";
}

TEST_P(GraphMemoryTest, TheEngineMayFreeItBeforeTheNextReplay) {
  Steps steps = make_steps();
  call(steps, 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(call(steps, 3), i == 0 ? Outcome::kRecord : Outcome::kReplay);
    EXPECT_EQ(free(outputs_[3]), Code::kSuccess);
  }
  EXPECT_EQ(steps.invalidate(outputs_[3], 1), 1u);
  EXPECT_EQ(call(steps, 3), Outcome::kRecord);
}

// The graph would be launched once and dropped, along with the memory that the engine must read.
TEST_P(GraphMemoryTest, AStepThatAlsoKeepsATensorRunsEagerly) {
  Steps steps = make_steps();
  Tensor kept;
  for (int i = 0; i < 2; ++i) {
    Step step = steps.begin({}, bindings());
    void* output = nullptr;
    for (; step.must_run(); step.end()) {
      output = forward(2, step.address(0), false);
      kept = empty({4}, DType::kFloat32);
    }
    EXPECT_EQ(step.outcome(), i == 0 ? Outcome::kWarmUp : Outcome::kRunEagerly);
    EXPECT_EQ(free(output), Code::kSuccess);
  }
  kept = Tensor();
}

// The capture makes a tensor that stays unfilled unless its graph is launched.
TEST_P(GraphMemoryTest, AStepThatKeepsATensorOfItsCaptureIsLaunchedOnce) {
  Steps steps = make_steps();
  const Tensor expected = random_tensor({4});
  Tensor kept;
  bool keeps = false;
  for (const Outcome outcome : {Outcome::kWarmUp, Outcome::kRunEagerly, Outcome::kRecord}) {
    const std::vector<float> x = random_floats(kCount);
    x_on_device_.copy_from<float>(x);
    Step step = steps.begin({}, bindings());
    void* output = nullptr;
    for (; step.must_run(); step.end()) {
      output = forward(2, step.address(0), false);
      if (keeps && !kept.defined()) kept = affine(expected, 1, 0);
    }
    keeps = true;
    EXPECT_EQ(step.outcome(), outcome);
    expect_output(output, affine_of(x, 2, 0));
    if (outcome != Outcome::kRecord) {
      EXPECT_EQ(free(output), Code::kSuccess) << "it is the engine's";
    }
    if (kept.defined()) {
      EXPECT_EQ(values(kept), values(expected));
    }
  }
  kept = Tensor();
}

// A recording that is dropped in the call that made it would free the memory with it.
TEST_P(GraphMemoryTest, ARecordingThatIsTooLargeLeavesItsMemoryToTheEngine) {
  make_context({.max_graph_bytes = kBytes / 2, .at_limit = AtLimit::kEvict});
  Steps steps = make_steps();
  EXPECT_EQ(call(steps, 2), Outcome::kWarmUp);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(call(steps, 2), Outcome::kRunEagerly) << i;
  EXPECT_EQ(recording_count(), 0u);
  EXPECT_EQ(stats().graph_bytes, 0u);
  EXPECT_EQ(steps.stats().skipped(SkipReason::kGraphBytesLimit), 3u);
}

// Its graph has as many allocations as frees, but frees memory of another graph.
TEST_P(GraphMemoryTest, AGraphThatFreesMemoryOfAnotherOneRunsEagerly) {
  for (const bool keeps : {true, false}) {
    Steps first = make_steps();
    Steps steps = make_steps({.keeps_allocations = keeps});
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(call(first, 3), i == 0   ? Outcome::kWarmUp
                                : i == 1 ? Outcome::kRecord
                                         : Outcome::kReplay);
      const std::vector<float> x = random_floats(kCount);
      x_on_device_.copy_from<float>(x);
      Step step = steps.begin({}, bindings());
      void* output = nullptr;
      for (; step.must_run(); step.end()) {
        const StreamRef stream = current_stream();
        output = forward(2, step.address(0), false);
        if (i > 0) check(stream.graphs().free_in_order(stream.handle(), outputs_[3]), "free");
      }
      EXPECT_EQ(step.outcome(), i == 0 ? Outcome::kWarmUp : Outcome::kRunEagerly);
      expect_output(output, affine_of(x, 2, 0));
      EXPECT_EQ(free(output), Code::kSuccess);
    }
    outputs_.clear();
  }
}

}  // namespace
}  // namespace cgtree::testing
