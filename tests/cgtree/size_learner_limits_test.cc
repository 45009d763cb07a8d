// A SizeLearner whose recordings fail, are evicted, are verified, or no longer fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cgtree/axes/axis_plan.h"
#include "cgtree/tree/tree.h"
#include "cgtree/values/eager_break.h"
#include "extensions/ranks/group.h"
#include "extensions/sizes/precapture.h"
#include "extensions/sizes/size_learner.h"
#include "extensions/verify/verify.h"
#include "extensions/watch/metrics.h"
#include "extensions/watch/monitor.h"
#include "tests/cgtree/size_learner_fixture.h"
#include "tests/support/rank_threads.h"

namespace cgtree::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = LearnerStep::Kind;

class SizeLearnerLimitsTest : public LearnerTest {
 protected:
  // Returns the number of the `moments` idle moments that recorded a size.
  int recorded_in(SizeLearner& learner, int moments) {
    int recorded = 0;
    for (int i = 0; i < moments; ++i)
      recorded += learner.idle(kPlenty).kind == Kind::kRecorded;
    return recorded;
  }
};
CGTREE_ON_ALL_DEVICES(SizeLearnerLimitsTest);

// Two of the five sizes have room: recordings must not evict each other forever.
TEST_P(SizeLearnerLimitsTest, WhereTheContextEvictsSizesTheRestIsKept) {
  ContextOptions options;
  options.max_recordings = 4;
  options.at_limit = AtLimit::kEvict;
  make_context(options);
  const Function f = doubled();
  SizeLearner learner(f, make_inputs());
  for (int i = 0; i < 20; ++i)
    for (const std::int64_t size : {10, 100, 1000, 2000, 4000})
      call(f, size);
  EXPECT_LE(recorded_in(learner, 100), 10);
  EXPECT_THAT(learner.sizes(), SizeIs(2));
  EXPECT_EQ(call(f, learner.sizes()[0]), Outcome::kReplay);
}

TEST_P(SizeLearnerLimitsTest, TwoLearnersDoNotTakeTurnsInOneLimit) {
  ContextOptions options;
  options.max_recordings = 6;
  options.at_limit = AtLimit::kEvict;
  make_context(options);
  const Function f = doubled(), g = doubled();
  SizeLearner of_f(f, make_inputs()), of_g(g, make_inputs());
  int recorded = 0;
  for (int i = 0; i < 100; ++i) {
    for (const std::int64_t size : {10, 1000, 4000}) {
      if (i < 20) call(f, size);
      if (i < 20) call(g, size);
    }
    recorded += recorded_in(of_f, 1) + recorded_in(of_g, 1);
  }
  EXPECT_LE(recorded, 20);
  EXPECT_LE(of_f.sizes().size() + of_g.sizes().size(), 3u);
  EXPECT_THAT(of_f.sizes(), ::testing::Not(IsEmpty()));
}

// A lack of memory is an outcome, and no size is dropped for one that keeps failing.
TEST_P(SizeLearnerLimitsTest, ASizeForWhichThereIsNoMemoryIsTriedEverMoreSeldom) {
  make_context(in_group_of_one());
  const Function f = doubled();
  SizeLearner learner(f,
                      [this](const CallSizes& sizes) {
                        if (sizes["n"] > 2000) throw OutOfMemory("no memory for inputs");
                        return std::vector<Tensor>{random_tensor({sizes["n"]})};
                      },
                      {.max_sizes = 2});
  call(f, 10);
  call(f, 1000);
  settle(learner);
  ASSERT_THAT(learner.sizes(), ElementsAre(10, 1000));
  int failed = 0;
  for (int i = 0; i < 100; ++i) {
    for (const std::int64_t size : {10, 1000, 4000})
      call(f, size);
    const LearnerStep step = learner.idle(kPlenty);
    if (step.kind != Kind::kFailed) continue;
    EXPECT_THAT(step.sizes, ElementsAre(4000));
    EXPECT_THAT(step.why, HasSubstr("no memory for inputs"));
    (void)learner.idle(kPlenty);  // records the size that was dropped for it
    EXPECT_THAT(learner.sizes(), ElementsAre(10, 1000));
    ++failed;
  }
  EXPECT_GE(failed, 2);
  EXPECT_LE(failed, 4);
}

TEST_P(SizeLearnerLimitsTest, ASizeWhoseInputsCannotBeMadeIsTriedEverMoreSeldomAndEvictsNothing) {
  make_context(in_group_of_one());
  const Function f = doubled();
  SizeLearner learner(f,
                      [this](const CallSizes& sizes) {
                        if (sizes["n"] > 100) throw std::runtime_error("too many rows");
                        return std::vector<Tensor>{random_tensor({sizes["n"]})};
                      },
                      {.max_sizes = 1});
  call(f, 10);
  settle(learner);
  ASSERT_THAT(learner.sizes(), ElementsAre(10));
  int thrown = 0;
  for (int i = 0; i < 300; ++i) {
    call(f, 400);
    try {
      (void)learner.idle(kPlenty);
    } catch (const std::runtime_error&) {
      ++thrown;
    }
  }
  EXPECT_GE(thrown, 2);
  EXPECT_LE(thrown, 4);
  call(f, 10);
  settle(learner);
  EXPECT_EQ(call(f, 10), Outcome::kReplay);
}

// A verified replay also runs the step function.
TEST_P(SizeLearnerLimitsTest, ReplaysThatAreVerifiedAreNotWhatIsMeasured) {
  for (const ContextOptions& options : {ContextOptions{.extensions = {verify({.every = 1})}},
                                        ContextOptions{.extensions = {verify({.first = 8})}}}) {
    make_context(options);
    const auto f = compile(
        context(), "slow",
        [](Tensor x) {
          std::this_thread::sleep_for(20ms);
          return affine(x, 2, 0);
        },
        learned_rows());
    SizeLearner learner(f, make_inputs());
    (void)f(random_tensor({4}));
    ASSERT_EQ(learner.idle(kPlenty).kind, Kind::kRecorded);
    EXPECT_LT(learner.costs().replay(4), 20'000);  // an unmeasured replay has the cost 4
  }
}

TEST_P(SizeLearnerLimitsTest, InAScopeWithoutGraphsNothingIsTried) {
  const Function f = doubled();
  SizeLearner learner(f, make_inputs());
  call(f, 4);
  {
    const NoGraph scope;
    EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kNothing);
  }
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kRecorded);
}

TEST_P(SizeLearnerLimitsTest, InsideItsOwnMakeInputsItIsRefused) {
  const Function f = doubled();
  SizeLearner* inside = nullptr;
  int refused = 0;
  SizeLearner learner(f, [&](const CallSizes& sizes) {
    try {
      (void)inside->idle(kPlenty);
    } catch (const ConcurrentUse& error) {
      EXPECT_THAT(error.what(), HasSubstr("'doubled'"));
      ++refused;
    }
    return std::vector<Tensor>{random_tensor({sizes["n"]})};
  });
  inside = &learner;
  call(f, 4);
  call(f, 9);
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kRecorded);
  EXPECT_GT(refused, 0);
}

// make_inputs does other things that a server may do while no call is in progress.
TEST_P(SizeLearnerLimitsTest, MakeInputsMayReleaseMemoryAndCallTheFunction) {
  const Function f = doubled();
  SizeLearner learner(f, [&](const CallSizes& sizes) {
    if (random_() % 2 == 0) context().release_memory();
    if (random_() % 2 == 0) context().mark_step();
    if (random_() % 2 == 0) call(f, 1 + static_cast<std::int64_t>(random_() % 20));
    return std::vector<Tensor>{random_tensor({sizes["n"]})};
  });
  for (int i = 0; i < 60; ++i) {
    call(f, 1 + static_cast<std::int64_t>(random_() % 20));
    (void)learner.idle(kPlenty);
    validate();
  }
}

// 300 idle moments of 1 us are shorter than a recording, which takes milliseconds.
TEST_P(SizeLearnerLimitsTest, ShortIdleMomentsAreNotOverrunEverAgain) {
  const Function f = doubled();
  SizeLearner learner(f, [this](const CallSizes& sizes) {
    std::this_thread::sleep_for(10ms);
    return std::vector<Tensor>{random_tensor({sizes["n"]})};
  });
  for (const std::int64_t size : {10, 100, 1000, 2000, 4000})
    call(f, size);
  ASSERT_EQ(learner.idle(1us).kind, Kind::kRecorded);  // its time is still unknown
  int recorded = 0;
  for (int i = 0; i < 300; ++i)
    recorded += learner.idle(1us).kind == Kind::kRecorded;
  EXPECT_EQ(recorded, 0);
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kRecorded);
}

TEST_P(SizeLearnerLimitsTest, TheTimeOfWhatThrowsCountsBetweenCalls) {
  const Function f = doubled();
  SizeLearner learner(f, [](const CallSizes&) -> std::vector<Tensor> {
    std::this_thread::sleep_for(20ms);
    throw std::runtime_error("no inputs");
  });
  call(f, 4);
  const auto begin = std::chrono::steady_clock::now();
  int thrown = 0;
  while (std::chrono::steady_clock::now() - begin < 200ms) {
    call(f, 4);
    try {
      (void)learner.between_calls();
    } catch (const std::runtime_error&) {
      ++thrown;
    }
  }
  EXPECT_LE(thrown, 1);
}

// Each check uses a part of the share, so that a check at each call would leave no time for a
// recording. In a group no size is recorded only because eager calls lose time.
TEST_P(SizeLearnerLimitsTest, BetweenCallsTheShareIsSavedUpForASizeThatTakesLong) {
  make_context(in_group_of_one());
  const Function f = doubled();
  SizeLearner learner(f,
                      [this](const CallSizes& sizes) {
                        std::this_thread::sleep_for(5ms);
                        return std::vector<Tensor>{random_tensor({sizes["n"]})};
                      },
                      {.busy_fraction = 0.05});
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t size = 4; learner.sizes().size() < 2; size = 4 + 996 * (random_() % 2)) {
    call(f, size);
    (void)learner.between_calls();
    ASSERT_LT(std::chrono::steady_clock::now() - begin, 30s) << "nothing is recorded any more";
  }
}

// A billionth of the time is enough for the first size only. Each eager call loses at least a
// quarter of a replay, so that about a hundred of them lose the time of a recording.
TEST_P(SizeLearnerLimitsTest, CallsThatLoseMoreThanARecordingTakesAreNotLeftEager) {
  const Function f = doubled();
  SizeLearner learner(f, make_inputs(), {.busy_fraction = 1e-9});
  std::size_t calls = 0;
  for (const std::int64_t size : {1 << 10, 1 << 14, 1 << 16}) {
    const std::size_t begin = calls;
    while (learner.sizes().empty() || learner.sizes().back() != size) {
      call(f, size);
      (void)learner.between_calls();
      ASSERT_LT(++calls - begin, 100'000u) << "size " << size << " stays eager";
    }
  }
  SizeLearner never(f, make_inputs(), {.busy_fraction = 0});
  for (int i = 0; i < 1000; ++i) {
    call(f, 1 << 17);
    EXPECT_EQ(never.between_calls().kind, Kind::kNothing);
  }
}

// The recordings refer to a cache that is no longer used.
TEST_P(SizeLearnerLimitsTest, RecordingsThatFitNoCallAreMadeAgain) {
  const auto f =
      compile(context(), "adds", [](Tensor x, Tensor /*cache*/) { return affine(x, 2, 0); },
              {.inputs = {{.dynamic = {{0, "n"}}}, {.is_static = true}},
               .axes = {{.name = "n", .policy = AxisPolicy::kLearned}},
               .outputs = {{.dynamic = {{0, "n"}}}}});
  Tensor cache = random_tensor({8});
  SizeLearner learner(f, [&](const CallSizes& sizes) {
    return std::vector<Tensor>{random_tensor({sizes["n"]}), cache};
  });
  (void)f(random_tensor({4}), cache);
  (void)learner.idle(kPlenty);
  (void)f(random_tensor({4}), cache);
  ASSERT_EQ(f.last_outcome()->outcome, Outcome::kReplay);
  const Tensor old = cache;
  cache = random_tensor({8});
  for (int i = 0; i < 100; ++i) {
    (void)f(random_tensor({4}), cache);
    (void)learner.idle(kPlenty);
  }
  EXPECT_EQ(f.last_outcome()->outcome, Outcome::kReplay);
}

TEST_P(SizeLearnerLimitsTest, RecordingsThatHadNoTurnAreVerifiedBeforeCallsAre) {
  make_context({.extensions = {verify({.every = 1000})}});
  bool differs = false;
  const auto f = compile(
      context(), "scaled", [&](Tensor x) { return affine(x, differs ? 3 : 2, 0); }, learned_rows());
  SizeLearner learner(f, make_inputs());
  (void)f(random_tensor({4}));
  ASSERT_EQ(learner.idle(kPlenty).kind, Kind::kRecorded);
  ASSERT_EQ(f.stats().verified, 0u);

  const LearnerStep step = learner.idle(kPlenty);

  EXPECT_EQ(step.kind, Kind::kVerified);
  EXPECT_THAT(step.sizes, ElementsAre(4));
  EXPECT_EQ(f.stats().verified, 2u);  // both recordings of the size
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kNothing);
  for (int i = 0; i < 20; ++i)
    (void)f(random_tensor({300}));
  ASSERT_THAT(learner.idle(kPlenty).sizes, ElementsAre(300));
  differs = true;
  EXPECT_THROW(learner.idle(kPlenty), VerifyError);
  for (int i = 0; i < 20; ++i)
    (void)f(random_tensor({300}));
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kNothing);  // verified in its turn
}

TEST_P(SizeLearnerLimitsTest, ASizeIsRecordedBeforeOthersAreVerified) {
  make_context({.extensions = {verify({.every = 1000})}});
  const Function f = doubled();
  SizeLearner learner(f, make_inputs());
  call(f, 4);
  ASSERT_EQ(learner.idle(kPlenty).kind, Kind::kRecorded);
  for (int i = 0; i < 20; ++i)
    call(f, 300);
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kRecorded);
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kVerified);
}

TEST_P(SizeLearnerLimitsTest, MemoryThatNothingUsesIsGivenBack) {
  make_context(in_group_of_one());
  const Function f = doubled();
  SizeLearner learner(f, make_inputs(), {.max_sizes = 1});
  call(f, 10'000'000);  // eagerly; its memory stays in a pool
  ASSERT_EQ(learner.idle(0us).kind, Kind::kNothing);
  for (int i = 0; i < 2000; ++i)
    call(f, 4);
  int moments = 0;
  std::size_t bytes = 0;
  const std::size_t before = stats().pool_reserved_bytes;
  for (; moments < 10; ++moments) {
    const LearnerStep step = learner.idle(kPlenty);
    bytes += step.bytes;
    if (step.kind == Kind::kNothing) break;
  }
  EXPECT_LT(moments, 5);
  EXPECT_GE(bytes, 40'000'000u);
  EXPECT_LT(stats().pool_reserved_bytes, before / 2);
  EXPECT_EQ(call(f, 4), Outcome::kReplay);

  if (pools_grow_in_place()) return;  // memory in front of a recording stays
  call(f, 10'000'000);
  for (int i = 0; i < 2000; ++i)
    call(f, 4);
  const LearnerStep step = learner.idle(kPlenty);  // the only thing to do
  EXPECT_EQ(step.kind, Kind::kGaveBack);
  EXPECT_GE(step.bytes, 40'000'000u);
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kNothing);
  EXPECT_EQ(call(f, 4), Outcome::kReplay);
}

// If no size can be added, 10 is dropped for 2000.
TEST_P(SizeLearnerLimitsTest, WhereMemoryIsShortASizeGoesForABetterOne) {
  make_context(in_group_of_one());
  const Function f = doubled();
  SizeLearner all(f, make_inputs());
  call(f, 10);
  settle(all);
  const std::size_t bytes = stats().pool_reserved_bytes;
  SizeLearner poor(f, make_inputs(), {.max_bytes = bytes});
  for (int i = 0; i < 200; ++i)
    call(f, 2000);
  settle(poor);
  EXPECT_THAT(poor.sizes(), ElementsAre(2000));
}

TEST_P(SizeLearnerLimitsTest, AfterReleaseMemoryWhatPaysMostIsMadeFirst) {
  make_context(in_group_of_one());
  const Function f = doubled();
  SizeLearner learner(f, make_inputs());
  for (int i = 0; i < 40; ++i) {
    call(f, 2000);
    call(f, 100);
    for (int j = 0; j < 4; ++j)
      call(f, 1000);
  }
  settle(learner);
  ASSERT_THAT(learner.sizes(), ElementsAre(100, 1000, 2000));
  context().release_memory();
  for (const std::int64_t size : {1000, 2000, 100})
    EXPECT_THAT(learner.idle(kPlenty).sizes, ElementsAre(size));
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kNothing);
}

TEST_P(SizeLearnerLimitsTest, AStepWithBreaksAndStepBlocksIsLearned) {
  std::vector<float> seen;
  const auto f = compile(
      context(), "breaks",
      [&](Tensor x, Tensor /*block*/) {
        Tensor y = affine(x, 2, 0);
        eager_break([&seen](const StepValues& values) { seen.push_back(values.get<float>(1)); });
        return affine(y, 1, 1);
      },
      learned_rows());
  SizeLearner learner(f, [&](const CallSizes& sizes) {
    return std::vector<Tensor>{random_tensor({sizes["n"]}), step_block(-1.0f)};
  });
  for (const std::int64_t size : {7, 3, 7, 5}) {
    const std::vector<float> x = random_floats(size);
    EXPECT_EQ(values(f(tensor({size}, x), step_block(0.0f))), affine_of(x, 2, 1));
    (void)learner.idle(kPlenty);
  }
  seen.clear();
  for (const float block : {5.0f, 6.0f}) {
    const std::vector<float> x = random_floats(6);
    EXPECT_EQ(values(f(tensor({6}, x), step_block(block))), affine_of(x, 2, 1));
    EXPECT_EQ(f.last_outcome()->outcome, Outcome::kReplay);
  }
  EXPECT_THAT(seen, ElementsAre(5, 6));
}

// One rank has no inputs, no memory, or a step that throws: all ranks give that size up, and go on.
TEST_P(SizeLearnerLimitsTest, RanksGoOnAlikeWhateverThrowsOnOne) {
  constexpr int kRanks = 2;
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(kRanks, 20'000ms);
  std::vector<Sizes> sizes(kRanks);
  std::vector<int> kinds[kRanks];
  const unsigned seed = random_();
  run_on_ranks(kRanks, [&](int rank) {
    std::mt19937 random(seed), mine(seed + static_cast<unsigned>(rank));
    ContextOptions options;
    options.group = std::move(groups[static_cast<std::size_t>(rank)]);
    Context context(device_of_rank(device(), rank), options);
    bool has_faults = false;
    const auto plan_fault = [&](unsigned every) {
      if (has_faults && mine() % every == 0) throw std::runtime_error("planted");
    };
    const auto f = compile(
        context, "doubled",
        [&](Tensor x) {
          Tensor y = affine(x, 2, 0);
          plan_fault(8);
          return y;
        },
        learned_rows());
    const auto make = [&](std::int64_t size) {
      const std::vector<float> threes(static_cast<std::size_t>(size), 3);
      return from_host(Shape{size}, std::span<const float>(threes), context.device());
    };
    SizeLearner learner(f,
                        [&](const CallSizes& of) {
                          plan_fault(4);
                          return std::vector{make(of["n"])};
                        },
                        {.max_sizes = 3});
    for (int i = 0; i < 200; ++i) {
      const std::int64_t size = 1 + static_cast<std::int64_t>(random()) % (i < 100 ? 30 : 60);
      EXPECT_EQ(f(make(size)).to_vector<float>(),
                std::vector<float>(static_cast<std::size_t>(size), 6));
      if (random() % 16 == 0) context.release_memory();
      has_faults = i > 20;
      int kind = 9;
      try {
        kind = static_cast<int>(learner.idle(rank == 0 ? kPlenty : 1'000'000us).kind);
      } catch (const std::exception&) {
      }
      has_faults = false;
      kinds[rank].push_back(kind);
    }
    sizes[static_cast<std::size_t>(rank)] = learner.sizes();
  });
  EXPECT_EQ(kinds[0], kinds[1]);
  EXPECT_EQ(sizes[0], sizes[1]);
  EXPECT_THAT(kinds[0], ::testing::Contains(static_cast<int>(Kind::kRecorded)));
}

// The work takes the same time at every size, as for small batches on a GPU: padding would cost
// nothing, and a size below a recorded one would gain nothing. But the limit of waste keeps calls
// from being padded that far.
TEST_P(SizeLearnerLimitsTest, ASizeThatIsNotPaddedForItsWasteIsRecorded) {
  const Tensor table = random_tensor({4});
  CompileOptions options = learned_rows();
  options.outputs.clear();
  options.max_waste = 2;
  const auto f = compile(
      context(), "f",
      [&](Tensor) {
        for (int i = 0; i < 20; ++i)
          update(table, 1, 0);
      },
      options);
  SizeLearner learner(f, make_inputs());
  const Tensor small = random_tensor({8}), large = random_tensor({64}),
               middle = random_tensor({16});
  for (int i = 0; i < 40; ++i)
    f(small), f(large);
  (void)settle(learner);
  for (int i = 0; i < 300; ++i) {
    f(middle);
    if (i % 8 == 0) (void)learner.idle(kPlenty);
  }
  f(middle);
  EXPECT_EQ(f.last_outcome()->outcome, Outcome::kReplay);
}

// The padding of other axes counts as waste, too.
TEST_P(SizeLearnerLimitsTest, TheWasteOfOtherAxesCounts) {
  const Tensor table = random_tensor({4});
  const auto f = compile(context(), "f",
                         [&](Tensor) {
                           for (int i = 0; i < 20; ++i)
                             update(table, 1, 0);
                         },
                         {.inputs = {{.dynamic = {{0, "n"}, {1, "m"}}}},
                          .axes = {{.name = "n", .policy = AxisPolicy::kLearned},
                                   {.name = "m", .policy = AxisPolicy::kBuckets, .sizes = {8}}},
                          .max_waste = 2.5});
  SizeLearner learner(f, [this](const CallSizes& sizes) {
    return std::vector<Tensor>{random_tensor({sizes["n"], sizes["m"]})};
  });
  // 40 rows of 4 padded to 64 of 8 would be 3.2 times the work.
  const Tensor large = random_tensor({64, 4}), small = random_tensor({40, 4});
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 20; ++i)
      f(large), f(small);
    (void)settle(learner);
  }
  const std::size_t n = 0;
  EXPECT_LT(f.state().axes->waste_left_for({&n, 1}), 64.0 / 40);
  for (const Tensor& x : {large, small}) {
    f(x);
    EXPECT_EQ(f.last_outcome()->outcome, Outcome::kReplay) << x.dim(0);
  }
}

TEST_P(SizeLearnerLimitsTest, CallsThatAreRefusedForWantOfARecordingAreDemand) {
  CompileOptions options = learned_rows();
  options.require_graph = true;
  const Function f = doubled(options);
  SizeLearner learner(f, make_inputs());
  for (int i = 0; i < 40; ++i)
    EXPECT_THROW((void)f(random_tensor({5})), CaptureError);
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kRecorded);
  EXPECT_EQ(call(f, 5), Outcome::kReplay);
}

TEST_P(SizeLearnerLimitsTest, APrecaptureOfALearnedAxisRecordsTheSizesThatItIsTold) {
  const Function f = doubled();
  SizeLearner learner(f, make_inputs());
  const PrecaptureReport report = precapture(f, {.sizes = {{"n", {8, 32}}}}, make_inputs());
  EXPECT_EQ(report.count(Precaptured::Outcome::kRecorded), 2u) << to_string(report);
  EXPECT_EQ(call(f, 3), Outcome::kReplay);
  EXPECT_EQ(call(f, 20), Outcome::kReplay);
  EXPECT_EQ(call(f, 33), Outcome::kRunEagerly);
  (void)learner.idle(kPlenty);
  EXPECT_THAT(learner.sizes(), ElementsAre(8, 32, 33));  // two sizes are taken over
  EXPECT_EQ(call(f, 8), Outcome::kReplay);
}

// An eager run counts further than the replay, which is an error only if the context verifies.
TEST_P(SizeLearnerLimitsTest, ALearnerOfAContextThatVerifiesNothingVerifiesNothing) {
  float runs = 0;
  const Function f = compile(
      context(), "f", [&](Tensor x) { return affine(x, 1, ++runs); }, learned_rows());
  SizeLearner learner(f, make_inputs());
  for (int i = 0; i < 40; ++i)
    (void)f(random_tensor({4}));
  for (int i = 0; i < 10; ++i)
    EXPECT_NE(learner.idle(kPlenty).kind, Kind::kVerified);
  EXPECT_EQ(f.stats().verified, 0u);
}

TEST_P(SizeLearnerLimitsTest, AVerificationWhoseInputsCannotBeMadeIsMadeLater) {
  make_context({.extensions = {verify({.every = 1'000'000})}});
  const Function f = doubled();
  bool throws = false;
  SizeLearner learner(f, [&](const CallSizes& sizes) {
    if (throws) throw std::runtime_error("no inputs now");
    return std::vector<Tensor>{random_tensor({sizes["n"]})};
  });
  for (int i = 0; i < 30; ++i)
    (void)f(random_tensor({4}));
  ASSERT_EQ(learner.idle(kPlenty).kind, Kind::kRecorded);
  throws = true;
  EXPECT_THROW((void)learner.idle(kPlenty), std::runtime_error);
  EXPECT_NE(learner.idle(kPlenty).kind, Kind::kVerified);  // waits after the failure
  throws = false;
  bool is_verified = false;
  for (int i = 0; i < 40 && !is_verified; ++i) {
    (void)f(random_tensor({4}));
    is_verified = learner.idle(kPlenty).kind == Kind::kVerified;
  }
  EXPECT_TRUE(is_verified);
}

// Another thread undeclares memory that recordings refer to, at any time.
TEST_P(SizeLearnerLimitsTest, RecordingsMayGoOnAnotherThreadWhileALearnerLooks) {
  make_context({.extensions = {verify({.every = 1'000'000})}});
  const Tensor table = random_tensor({1});
  const Function f = compile(
      context(), "f",
      [&](Tensor x) {
        Tensor y = affine(x, 2, 0);
        update(table, 1, 0);
        return y;
      },
      learned_rows());
  std::vector<std::int64_t> sizes(200);  // of another function, to slow the search
  std::iota(sizes.begin(), sizes.end(), 1);
  const Function others = compile(context(), "others", [](Tensor x) { return affine(x, 2, 0); },
                                  {.inputs = {{.dynamic = {{0, "n"}}}},
                                   .buckets = {{"n", sizes}},
                                   .outputs = {{.dynamic = {{0, "n"}}}},
                                   .max_recordings = sizes.size()});
  (void)precapture(others, {.held_outputs = 0}, make_inputs());
  SizeLearner learner(f, make_inputs(), {.max_sizes = 8, .held_outputs = 0});
  for (int round = 0; round < 60; ++round) {
    for (int i = 0; i < 20; ++i)
      (void)f(random_tensor({4}));
    context().declare("table", table.data(), table.bytes());
    for (int i = 0; i < 6 && learner.idle(kPlenty).kind != Kind::kRecorded; ++i) {
    }
    const std::chrono::microseconds delay(random_() % 1000);
    std::atomic<bool> is_there{false}, goes{false};
    std::thread other([&] {
      is_there = true;
      while (!goes) {
      }
      const auto begin = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - begin < delay) {
      }
      context().undeclare("table");
    });
    while (!is_there) {
    }
    goes = true;
    for (int i = 0; i < 3; ++i)
      (void)learner.idle(kPlenty);
    other.join();
  }
}

TEST_P(SizeLearnerLimitsTest, CallsThatArePaddedToALearnedSizeAreSeenAsPadded) {
  make_context(in_group_of_one());
  const Function f = doubled();
  SizeLearner learner(f, make_inputs(), {.max_sizes = 1});
  for (int i = 0; i < 20; ++i)
    (void)call(f, 64);
  ASSERT_EQ(learner.idle(kPlenty).kind, Kind::kRecorded);
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(call(f, 4), Outcome::kReplay);
  const ContextMetrics metrics = metrics_of(context());
  ASSERT_EQ(metrics.functions.size(), 1u);
  const SizeSums sums = metrics.functions[0].axes.at(0).sums;
  EXPECT_EQ(sums.actual, 20u * 64 + 100 * 4);
  EXPECT_EQ(sums.padded, 120u * 64);
}

}  // namespace
}  // namespace cgtree::testing
