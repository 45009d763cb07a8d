// release_memory(): all memory that no output uses is freed, and warm functions record at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cgtree/steps.h"
#include "interop/device/graph.h"
#include "tests/support/core_fixture.h"

namespace cgtree::testing {
namespace {

class ReleaseMemoryTest : public TreeTest {
 protected:
  using Function = CompiledFunction<Tensor(Tensor)>;
  static constexpr std::int64_t kLarge = 1'000'000;

  Function make(CompileOptions options = {}) {
    return compile(
        context(), "f", [](Tensor x) { return affine(affine(x, 0.5f, 0), 2, 1); },
        std::move(options));
  }
  Outcome call(const Function& f, std::int64_t size) {
    const std::vector<float> x = random_floats(size);
    EXPECT_EQ(values(f(tensor({size}, x))), affine_of(affine_of(x, 0.5f, 0), 2, 1));
    return f.last_outcome()->outcome;
  }
};
CGTREE_ON_ALL_DEVICES(ReleaseMemoryTest);

TEST_P(ReleaseMemoryTest, AllIsGivenBackAndTheNextCallRecordsAtOnce) {
  const Function f = make();
  for (int i = 0; i < 3; ++i)
    (void)call(f, kLarge);
  const std::size_t reserved = stats().pool_reserved_bytes;
  EXPECT_GE(reserved, std::size_t{3} * kLarge * sizeof(float));
  EXPECT_EQ(context().release_memory(), reserved);
  EXPECT_EQ(stats().pool_reserved_bytes, 0u);
  EXPECT_EQ(stats().graph_bytes, 0u);
  EXPECT_EQ(stats().kept_recordings, 0u);
  EXPECT_EQ(segments_->held(), 0);
  EXPECT_EQ(call(f, kLarge), Outcome::kRecord);
  EXPECT_EQ(call(f, kLarge), Outcome::kReplay);
  EXPECT_EQ(f.stats().warm_ups, 1u);
}

TEST_P(ReleaseMemoryTest, OutputsThatAreHeldStayValid) {
  const Function f = make();
  std::vector<Tensor> held;
  std::vector<std::vector<float>> expected;
  for (int round = 0; round < 4; ++round) {
    for (const std::int64_t size : {10, 1000, 300'000}) {
      const std::vector<float> x = random_floats(size);
      held.push_back(f(tensor({size}, x)));
      expected.push_back(affine_of(affine_of(x, 0.5f, 0), 2, 1));
    }
    held.erase(held.begin());
    expected.erase(expected.begin());
    (void)context().release_memory();
    validate();
    for (std::size_t i = 0; i < held.size(); ++i)
      EXPECT_EQ(values(held[i]), expected[i]);
  }
}

TEST_P(ReleaseMemoryTest, WorkspacesStayAndAreUsedByWhatIsRecordedAnew) {
  Tensor workspace;
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (!workspace.defined()) workspace = affine(x, 0, 5);
    return add(x, workspace);
  });
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 3; ++i) {
      const std::vector<float> x = random_floats(10);
      EXPECT_EQ(values(f(tensor({10}, x))), affine_of(x, 1, 5));
    }
    (void)context().release_memory();
  }
  EXPECT_EQ(f.stats().warm_ups, 1u);
  workspace = Tensor();
}

// Frozen functions record again, since nothing else would record them.
TEST_P(ReleaseMemoryTest, FrozenFunctionsComeBackAsTheyWere) {
  const Function plain = make();
  for (int i = 0; i < 2; ++i)
    (void)call(plain, 10);
  plain.freeze();
  for (int round = 0; round < 2; ++round) {
    (void)context().release_memory();
    EXPECT_EQ(call(plain, 10), Outcome::kRecord);
    EXPECT_EQ(call(plain, 10), Outcome::kReplay);
    EXPECT_EQ(call(plain, 20), Outcome::kRunEagerly);
  }
}

// The same holds when freeze() follows release_memory(); recordings that were evicted earlier do
// not come back.
TEST_P(ReleaseMemoryTest, AFunctionThatIsFrozenAfterwardsComesBackToo) {
  const Function f = make({.max_recordings = 2, .at_limit = AtLimit::kEvict});
  for (const std::int64_t size : {10, 20, 30}) {
    for (int i = 0; i < 2; ++i)
      (void)call(f, size);
  }
  for (int round = 0; round < 2; ++round) {
    (void)context().release_memory();
    f.freeze(WhenFrozen::kThrow);
    for (const std::int64_t size : {20, 30}) {
      EXPECT_EQ(call(f, size), Outcome::kRecord);
      EXPECT_EQ(call(f, size), Outcome::kReplay);
    }
    EXPECT_THROW((void)call(f, 10), CaptureError);
    f.unfreeze();
  }
}

TEST_P(ReleaseMemoryTest, StepsRecordAtOnceToo) {
  Steps steps(context(), "steps");
  const Tensor memory = random_tensor({10});
  const Binding binding = {reinterpret_cast<const void*>(memory.address()), memory.bytes()};
  const auto step = [&] {
    for (Step step = steps.begin({{"size", 1}}, {&binding, 1}); step.must_run(); step.end())
      update(memory, 0.5f, 1);
    return steps.last_outcome()->outcome;
  };
  for (const Outcome expected : {Outcome::kWarmUp, Outcome::kRecord, Outcome::kReplay})
    EXPECT_EQ(step(), expected);
  (void)context().release_memory();
  for (const Outcome expected : {Outcome::kRecord, Outcome::kReplay})
    EXPECT_EQ(step(), expected);
  const Step open = steps.begin({{"size", 2}}, {&binding, 1});
  EXPECT_THROW((void)context().release_memory(), ConcurrentUse);
}

TEST_P(ReleaseMemoryTest, InsideAStepAndWhileTheStreamIsCapturedItIsRefused) {
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    EXPECT_THROW((void)context().release_memory(), ConcurrentUse);
    return affine(x, 2, 1);
  });
  for (int i = 0; i < 3; ++i)
    (void)f(random_tensor({10}));
  const Stream mine(device());
  {
    const StreamScope scope(mine);
    Capture capture(mine, CaptureMode::kThreadLocal);
    EXPECT_THROW((void)context().release_memory(), CaptureError);
    Graph graph;
    (void)capture.end(&graph);
  }
  EXPECT_EQ(stats().kept_recordings, 1u);
  (void)f(random_tensor({10}));
  EXPECT_EQ(f.last_outcome()->outcome, Outcome::kReplay);
}

}  // namespace
}  // namespace cgtree::testing
