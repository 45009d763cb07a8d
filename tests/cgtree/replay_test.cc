// Warm-up, recording, replay: the results of a call, and the number of runs of the step function.
#include <gtest/gtest.h>

#include "tests/support/core_fixture.h"

namespace cgtree::testing {
namespace {

class ReplayTest : public TreeTest {};
CGTREE_ON_ALL_DEVICES(ReplayTest);

// Row 72 dynamic_warmup: invoked exactly twice per key (warm-up, record), then replayed.
// Acceptance: trees 72.
TEST_P(ReplayTest, StepFunctionRunsTwicePerShapeAndNeverAgain) {
  int runs = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    ++runs;
    return affine(x, 2, 1);
  });

  for (const std::int64_t size : {5, 7}) {
    for (int call = 0; call < 6; ++call) {
      const std::vector<float> x = random_floats(size);
      EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, 2, 1));
    }
  }

  EXPECT_EQ(runs, 4);
  EXPECT_EQ(f.stats().warm_ups, 2u);
  EXPECT_EQ(f.stats().recordings, 2u);
  EXPECT_EQ(f.stats().replays, 8u);
}

TEST_P(ReplayTest, AnotherShapeWithAsManyElementsIsAnotherCall) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });

  for (const Shape& shape : {Shape{2, 3}, Shape{3, 2}, Shape{6}, Shape{1, 6}}) {
    for (int call = 0; call < 3; ++call) {
      const std::vector<float> x = random_floats(6);
      const Tensor y = f(tensor(shape, x));
      EXPECT_EQ(y.shape(), shape);
      EXPECT_EQ(values(y), affine_of(x, 2, 1));
    }
  }
}

// Rows 1 run_simple and 61 separate_recordings: two shapes, two roots without children.
// Acceptance: trees 1, 61.
TEST_P(ReplayTest, EachShapeHasARecordingOfItsOwn) {
  CompiledFunction f = compile(context(), "f", [](Tensor x, Tensor y) { return add(x, y); });

  for (int call = 0; call < 4; ++call) {
    for (const Shape& shape : {Shape{4, 4}, Shape{5, 5}}) {
      const std::vector<float> x = random_floats(shape.elements());
      const std::vector<float> y = random_floats(shape.elements());
      const std::vector<float> z = values(f(tensor(shape, x), tensor(shape, y)));
      for (std::size_t i = 0; i < z.size(); ++i)
        EXPECT_EQ(z[i], x[i] + y[i]);
    }
  }

  EXPECT_EQ(recording_count(), 2u);
}

TEST_P(ReplayTest, InputsMayLieAnywhereAndArePatchedOnlyWhenTheyMove) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 3, 0); });
  const std::vector<Tensor> inputs = {random_tensor({33}), random_tensor({33}),
                                      random_tensor({33})};
  (void)f(inputs[0]);
  (void)f(inputs[0]);  // records

  (void)f(inputs[0]);
  EXPECT_EQ(stats().root_patches, 0u);

  for (const Tensor& input : inputs) {
    EXPECT_EQ(values(f(input)), affine_of(values(input), 3, 0));
    EXPECT_EQ(values(f(input)), affine_of(values(input), 3, 0));
  }
  EXPECT_EQ(stats().root_patches, 2u);
}

TEST_P(ReplayTest, StridedAndUnalignedInputsReplayAsTheyAre) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 1, 2); });
  const Tensor whole = random_tensor({6, 10});
  const std::vector<float> all = values(whole);

  for (int call = 0; call < 4; ++call) {
    // At each call another address, 4 bytes after a multiple of 8.
    const Tensor view = whole.slice(1, 1 + call, 5 + call).transpose(0, 1);
    const std::vector<float> y = values(f(view));
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t j = 0; j < 6; ++j) {
        EXPECT_EQ(y[i * 6 + j], all[j * 10 + i + 1 + call] + 2) << call << " " << i << " " << j;
      }
    }
  }
  EXPECT_EQ(f.stats().replays, 2u);
}

TEST_P(ReplayTest, MoreInputsThanOneRootNodeHoldsChainAnother) {
  constexpr int kCount = 600;
  CompiledFunction f = compile(context(), "sum", [](std::span<const Tensor> x) {
    Tensor sum = affine(x[0], 1, 0);
    for (std::size_t i = 1; i < x.size(); ++i)
      sum = add(sum, x[i]);
    return sum;
  });

  for (int call = 0; call < 4; ++call) {
    std::vector<Tensor> inputs;
    float expected = 0;
    for (int i = 0; i < kCount; ++i) {
      const float value = random_floats(1)[0];
      expected += value;
      inputs.push_back(tensor({1}, std::vector<float>{value}));
    }
    EXPECT_EQ(values(f(inputs))[0], expected);
  }
  EXPECT_EQ(f.stats().replays, 2u);
}

TEST_P(ReplayTest, LargeInputsAreCopiedWhole) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 1, 1); });
  const std::int64_t count = (1 << 18) + 3;  // more than one chunk, and an odd tail

  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(count);
    EXPECT_EQ(values(f(tensor({count}, x))), affine_of(x, 1, 1));
  }
}

// Rows 85, 113: another static address gets a sibling; the first address replays the first
// recording again.
// Acceptance: trees 85, 113.
TEST_P(ReplayTest, AStaticInputAtAnotherAddressGetsASiblingRecording) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x, Tensor weights) { return add(x, weights); },
              {.inputs = {{}, {.is_static = true}}});
  const Tensor weights[] = {random_tensor({8}), random_tensor({8})};

  for (int call = 0; call < 12; ++call) {
    const Tensor& w = weights[(call / 3) % 2];
    const std::vector<float> x = random_floats(8);
    const std::vector<float> y = values(f(tensor({8}, x), w));
    for (int i = 0; i < 8; ++i)
      EXPECT_EQ(y[i], x[i] + values(w)[i]);
  }

  EXPECT_EQ(f.stats().recordings, 2u);
  EXPECT_EQ(f.stats().replays, 9u);
}

// Row 7 mutation_on_inp: each call increments a written static input once.
// Acceptance: trees 7; graphs optims.
TEST_P(ReplayTest, AMutatedStaticInputIsBumpedOncePerCallInEveryPhase) {
  const Tensor state = tensor({3}, std::vector<float>{0, 10, 20});
  CompiledFunction f = compile(context(), "bump",
                               [](Tensor s) {
                                 update(s, 1, 1);
                                 return affine(s, 1, 0);
                               },
                               {.inputs = {{.is_static = true, .is_mutated = true}}});

  for (int call = 1; call <= 5; ++call) {
    const std::vector<float> expected = {0.0f + call, 10.0f + call, 20.0f + call};
    EXPECT_EQ(values(f(state)), expected);
    EXPECT_EQ(values(state), expected);
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

// Row 49 frozen_fn: repeated calls make no further recording.
// Acceptance: trees 49.
TEST_P(ReplayTest, AStepLoopRecordsOnceAndReplaysForEver) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });

  for (int step = 0; step < 50; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(9);
    EXPECT_EQ(values(f(tensor({9}, x))), affine_of(x, 2, 0));
  }

  EXPECT_EQ(recording_count(), 1u);
  EXPECT_EQ(f.stats().replays, 48u);
}

TEST_P(ReplayTest, StatsSayWhatTheCallsDid) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (int call = 0; call < 4; ++call)
    (void)f(random_tensor({2}));

  EXPECT_EQ(f.stats().calls, 4u);
  EXPECT_EQ(f.stats().warm_ups, 1u);
  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(f.stats().replays, 2u);
  EXPECT_EQ(f.stats().skipped(), 0u);
}

}  // namespace
}  // namespace cgtree::testing
