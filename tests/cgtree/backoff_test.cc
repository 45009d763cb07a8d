// Back-off of calls that are recorded repeatedly without a replay, for every cause.
#include "cgtree/tree/backoff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <vector>

#include "simulator/host_device.h"
#include "tests/support/call_trace.h"
#include "tests/support/captured_log.h"
#include "tests/support/host_slot.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

TEST(BackoffValueTest, CallsWaitAfterSoManyFailuresInARowAndTwiceAsLongEachTime) {
  Backoff backoff(2);
  backoff.note_failure();
  EXPECT_FALSE(backoff.waits());
  for (const std::uint64_t wait : {64u, 128u, 256u}) {
    backoff.note_failure();
    for (std::uint64_t call = 0; call < wait; ++call) {
      ASSERT_TRUE(backoff.waits());
      EXPECT_EQ(backoff.calls_left(), wait - call);
      backoff.note_failure();  // does not lengthen the wait
      backoff.note_wait();
    }
    EXPECT_FALSE(backoff.waits());
  }
}

TEST(BackoffValueTest, ATryThatPaysMakesWaitsShortAgain) {
  Backoff backoff(1);
  backoff.note_failure();
  for (int call = 0; call < 64; ++call)
    backoff.note_wait();
  backoff.reset();
  EXPECT_EQ(backoff.failures(), 0u);
  backoff.note_failure();
  EXPECT_EQ(backoff.calls_left(), 64u);
}

TEST(BackoffValueTest, SeveralCallsWaitAtOnceAndTheFirstWaitMayBeShorter) {
  Backoff backoff(1, /*first_wait=*/16);
  for (const std::uint64_t wait : {16u, 32u}) {
    backoff.note_failure();
    backoff.note_wait(wait - 1);
    EXPECT_EQ(backoff.calls_left(), 1u);
    backoff.note_wait(1000);
    EXPECT_FALSE(backoff.waits());
  }
  backoff.reset();
  backoff.note_failure();
  EXPECT_EQ(backoff.calls_left(), 16u);
}

TEST(BackoffValueTest, AFailureForGoodIsNotTriedAgain) {
  Backoff backoff(3);
  backoff.note_failure(/*for_good=*/true);
  for (int call = 0; call < 1000; ++call)
    backoff.note_wait();
  EXPECT_TRUE(backoff.waits());
  EXPECT_EQ(backoff.calls_left(), Backoff::kForGood);
}

class BackoffTest : public TreeTest {
 protected:
  template <typename Function>
  void call_with_size(const Function& f, std::int64_t size) {
    const std::vector<float> x = random_floats(size);
    EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, 2, 0));
  }

  CapturedLog warnings_;
};
CGTREE_ON_ALL_DEVICES(BackoffTest);

const auto doubled = [](Tensor x) { return affine(x, 2, 0); };

TEST_P(BackoffTest, SizesInACycleThatIsOneTooLongReplayAllButOne) {
  constexpr int kSizes = 5;
  CompiledFunction f =
      compile(context(), "f", doubled, {.max_recordings = kSizes - 1, .at_limit = AtLimit::kEvict});
  for (int call = 0; call < 500; ++call)
    call_with_size(f, 1 + call % kSizes);

  EXPECT_LE(f.stats().recordings, 30u);
  EXPECT_GE(f.stats().replays, 350u);
  EXPECT_THAT(to_string(f.explain(random_tensor({7}))), HasSubstr("warm_up"));
}

TEST_P(BackoffTest, FunctionsThatEvictOneAnotherSettle) {
  make_context({.max_recordings = 1, .at_limit = AtLimit::kEvict});
  CompiledFunction f = compile(context(), "f", doubled);
  CompiledFunction g = compile(context(), "g", doubled);
  for (int call = 0; call < 300; ++call) {
    call_with_size(f, 3);
    call_with_size(g, 3);
  }

  EXPECT_LE(stats().recordings, 40u);
  EXPECT_GE(stats().replays, 200u);
}

TEST_P(BackoffTest, SizesThatAnAxisDropsAreRecordedNoMoreForAWhile) {
  CompiledFunction f = compile(context(), "f", doubled,
                               {.inputs = {{.dynamic = {{0, "n"}}}},
                                .axes = {{.name = "n",
                                          .policy = AxisPolicy::kExact,
                                          .max_sizes = 1,
                                          .at_max_sizes = AtMaxSizes::kEvict}}});
  for (int call = 0; call < 400; ++call)
    call_with_size(f, 1 + call / 2 % 3);

  EXPECT_LE(f.stats().recordings, 12u);
}

// The step function reads an output that is not its input: of this step of the loop, or of another
// context.
TEST_P(BackoffTest, AnOutputThatEachStepEndsAndThatIsNoInputIsRecordedWithRarely) {
  for (const bool is_others : {false, true}) {
    make_context({});
    Context other(device());
    Context& owner = is_others ? other : context();
    Tensor made;
    CompiledFunction g = compile(owner, "g", [](Tensor x) { return affine(x, 0, 1); });
    CompiledFunction f = compile(context(), "f", [&](Tensor x) { return add(x, made); });
    const Tensor zeros = tensor({3}, std::vector<float>(3, 0));
    for (int step = 0; step < 300; ++step) {
      owner.mark_step();
      made = g(zeros);
      const std::vector<float> x = random_floats(3);
      EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 1, 1));
    }
    EXPECT_LE(f.stats().recordings, 8u);

    for (int call = 0; call < 300; ++call)  // the output no longer ends
      (void)f(zeros);
    EXPECT_GE(f.stats().replays, 20u);
    made = Tensor();
  }
}

TEST_P(BackoffTest, RecordingsThatOneMarkStepEndsAtOnceAreMadeAgainAtOnce) {
  constexpr int kSizes = 8;
  Tensor made;
  CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 0, 1); });
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    (void)made.data();
    return affine(x, 2, 0);
  });
  for (int step = 0; step < 2; ++step) {
    context().mark_step();
    made = g(random_tensor({3}));
    for (int call = 0; call < 4 * kSizes; ++call)
      call_with_size(f, 1 + call % kSizes);
  }
  EXPECT_EQ(f.stats().recordings, 2u * kSizes);
  EXPECT_EQ(f.stats().skipped(SkipReason::kBacksOff), 0u);
  made = Tensor();
}

TEST_P(BackoffTest, AStaticInputThatMovesAtEachCallIsRecordedRarelyAndTheCallSaysWhy) {
  CompiledFunction f = compile(context(), "f", [](Tensor w, Tensor x) { return add(w, x); },
                               {.inputs = {{.name = "weight", .is_static = true}}});
  std::vector<Tensor> weights;
  for (int call = 0; call < 300; ++call)
    (void)f(weights.emplace_back(random_tensor({4})), random_tensor({4}));

  EXPECT_LE(f.stats().recordings, 12u);
  EXPECT_GE(f.stats().skipped(SkipReason::kBacksOff), 280u);
  EXPECT_THAT(to_string(f.explain(random_tensor({4}), random_tensor({4}))),
              AllOf(HasSubstr("backs_off"), HasSubstr("fewer than 16 replays"),
                    HasSubstr("it is tried again after"), HasSubstr("'weight'")));
}

// Each session has a cache; all sessions are recorded by the second round.
TEST_P(BackoffTest, StaticAddressesThatComeAgainAreRecordedThoughOthersWait) {
  constexpr int kSessions = 40;
  CompiledFunction f = compile(context(), "f", [](Tensor w, Tensor x) { return add(w, x); },
                               {.inputs = {{.is_static = true}}});
  std::vector<Tensor> caches;
  for (int i = 0; i < kSessions; ++i)
    caches.push_back(random_tensor({4}));
  for (int round = 0; round < 5; ++round) {
    for (const Tensor& cache : caches)
      (void)f(cache, random_tensor({4}));
  }

  EXPECT_EQ(f.stats().recordings, static_cast<std::uint64_t>(kSessions));
  EXPECT_GE(f.stats().replays, 3u * kSessions - 2);
}

TEST_P(BackoffTest, AFunctionThatRequiresGraphsIsRecordedEachTime) {
  CompiledFunction f = compile(context(), "f", [](Tensor w, Tensor x) { return add(w, x); },
                               {.inputs = {{.is_static = true}}, .require_graph = true});
  std::vector<Tensor> weights;
  for (int call = 0; call < 60; ++call)
    (void)f(weights.emplace_back(random_tensor({4})), random_tensor({4}));

  EXPECT_EQ(f.stats().recordings, 59u);
}

TEST_P(BackoffTest, RecordingsThatAreReplayedEnoughAreMadeAtOnceForEver) {
  CompiledFunction f = compile(context(), "f", [](Tensor w, Tensor x) { return add(w, x); },
                               {.inputs = {{.is_static = true}}});
  std::vector<Tensor> kept;  // so that no address repeats
  for (int i = 0; i < 20; ++i) {
    const Tensor weight = random_tensor({4});
    for (int call = 0; call < 30; ++call)
      (void)f(weight, random_tensor({4}));
    kept.push_back(weight);
  }

  EXPECT_EQ(f.stats().skipped(), 0u);
}

TEST_P(BackoffTest, AStepThatBreaksEachSecondCaptureSettles) {
  int captures = 0;
  CompiledFunction f = compile(context(), "f",
                               [&](Tensor w, Tensor x) {
                                 if (current_stream().is_capturing() && ++captures % 2 == 0)
                                   throw std::runtime_error("busy");
                                 return add(w, x);
                               },
                               {.inputs = {{.is_static = true}}});
  std::vector<Tensor> weights;
  for (int call = 0; call < 300; ++call)
    (void)f(weights.emplace_back(random_tensor({4})), random_tensor({4}));

  EXPECT_LE(captures, 30);
}

// ---- Cost, in calls of the driver ---------------------------------------------------------------

class BackoffCostTest : public ::testing::Test {
 protected:
  BackoffCostTest() { HostSlot::instance().put(trace_.device()); }
  ~BackoffCostTest() override { HostSlot::instance().put(host_device_api()); }

  using Loop = std::function<void(Context&, bool is_graphed)>;
  std::size_t calls_of(const Loop& loop, bool is_graphed) {
    Context context(device(), {.at_limit = AtLimit::kEvict});
    trace_.clear();
    loop(context, is_graphed);
    return trace_.calls().size();
  }
  // Allows at most three times the driver calls of the same loop without graphs.
  void expect_cheap(const Loop& loop) {
    const std::size_t eager = calls_of(loop, false);
    const std::size_t graphed = calls_of(loop, true);
    std::printf("%zu calls of the driver, eagerly %zu\n", graphed, eager);
    EXPECT_LE(graphed, 3 * eager);
  }
  static Device device() { return HostSlot::instance().device(); }
  static Tensor floats(std::int64_t size) { return empty({size}, DType::kFloat32, device()); }

  CapturedLog warnings_;
  CallTrace trace_{host_device_api()};
};

constexpr int kCalls = 200;

TEST_F(BackoffCostTest, KeptResults) {
  expect_cheap([](Context& context, bool is_graphed) {
    CompiledFunction f =
        compile(context, "f", doubled, {.enabled = is_graphed, .at_limit = AtLimit::kEvict});
    std::vector<Tensor> kept;
    const Tensor x = floats(64);
    for (int call = 0; call < kCalls; ++call)
      kept.push_back(f(x));
  });
}

TEST_F(BackoffCostTest, SizesInACycle) {
  expect_cheap([](Context& context, bool is_graphed) {
    CompiledFunction f =
        compile(context, "f", doubled,
                {.enabled = is_graphed, .max_recordings = 2, .at_limit = AtLimit::kEvict});
    const Tensor x[] = {floats(64), floats(65), floats(66)};
    for (int call = 0; call < kCalls; ++call)
      (void)f(x[call % 3]);
  });
}

TEST_F(BackoffCostTest, AnAddressThatMoves) {
  expect_cheap([](Context& context, bool is_graphed) {
    CompiledFunction f = compile(
        context, "f", doubled,
        {.inputs = {{.is_static = true}}, .enabled = is_graphed, .at_limit = AtLimit::kEvict});
    const Tensor all = floats(64 * kCalls);
    for (int call = 0; call < kCalls; ++call)
      (void)f(all.slice(0, 64 * call, 64 * call + 64));
  });
}

TEST_F(BackoffCostTest, CapturesThatFailEachSecondTime) {
  expect_cheap([](Context& context, bool is_graphed) {
    int captures = 0;
    CompiledFunction f = compile(
        context, "f",
        [&](Tensor x) {
          if (current_stream().is_capturing() && ++captures % 2 == 0)
            throw std::runtime_error("busy");
          return affine(x, 2, 0);
        },
        {.inputs = {{.is_static = true}}, .enabled = is_graphed, .at_limit = AtLimit::kEvict});
    const Tensor all = floats(64 * kCalls);
    for (int call = 0; call < kCalls; ++call)
      (void)f(all.slice(0, 64 * call, 64 * call + 64));
  });
}

}  // namespace
}  // namespace cgtree::testing
