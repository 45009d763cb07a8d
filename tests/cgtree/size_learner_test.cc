// Sizes that are recorded while a server runs.
#include "extensions/sizes/size_learner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "extensions/ranks/group.h"
#include "extensions/verify/verify.h"
#include "interop/device/graph.h"
#include "interop/random/random.h"
#include "interop/tensor/copy.h"
#include "tests/cgtree/size_learner_fixture.h"
#include "tests/support/rank_threads.h"

namespace cgtree::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;
using Kind = LearnerStep::Kind;

class SizeLearnerTest : public LearnerTest {};
CGTREE_ON_ALL_DEVICES(SizeLearnerTest);

TEST_P(SizeLearnerTest, ACallIsNeverRecorded) {
  const Function f = doubled();
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(call(f, 3), Outcome::kRunEagerly);
  EXPECT_EQ(f.last_outcome()->skip_reason, SkipReason::kNotRecorded);
  EXPECT_EQ(stats().recordings, 0u);
}

TEST_P(SizeLearnerTest, AnIdleMomentRecordsTheSizeThatServesAllCalls) {
  const Function f = doubled();
  SizeLearner learner(f, make_inputs());
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kNothing);  // no call yet
  call(f, 3);
  call(f, 7);

  const LearnerStep step = learner.idle(kPlenty);

  EXPECT_EQ(step.kind, Kind::kRecorded);
  EXPECT_THAT(step.sizes, ElementsAre(7));
  EXPECT_GT(step.time.count(), 0);
  EXPECT_THAT(learner.sizes(), ElementsAre(7));
  const std::uint64_t recordings = f.stats().recordings;
  for (const std::int64_t size : {7, 3, 1, 5, 7})
    EXPECT_EQ(call(f, size), Outcome::kReplay) << size;
  EXPECT_EQ(call(f, 8), Outcome::kRunEagerly);
  EXPECT_EQ(f.stats().recordings, recordings);
}

TEST_P(SizeLearnerTest, RunsOfItsOwnAreNoDemand) {
  const Function f = doubled();
  SizeLearner learner(f, make_inputs());
  call(f, 6);
  settle(learner);
  ASSERT_THAT(learner.sizes(), ElementsAre(6));
  EXPECT_EQ(learner.demand(), (Demand{{{6}, 1}}));
}

TEST_P(SizeLearnerTest, ALearnerGoesOnWhereAnotherEnded) {
  const Function f = doubled();
  {
    SizeLearner first(f, make_inputs());
    call(f, 6);
    settle(first);
  }
  SizeLearner second(f, make_inputs());
  EXPECT_THAT(second.sizes(), ElementsAre(6));
  (void)second.idle(kPlenty);
  EXPECT_EQ(call(f, 5), Outcome::kReplay);
}

TEST_P(SizeLearnerTest, WithoutTimeOrMemoryNothingIsRecorded) {
  const Function f = doubled();
  SizeLearner learner(f, make_inputs());
  const Tensor held = f(random_tensor({4}));  // so that pools hold some memory
  EXPECT_EQ(learner.idle(0us).kind, Kind::kNothing);
  EXPECT_EQ(learner.idle(-1us).kind, Kind::kNothing);
  SizeLearner poor(f, make_inputs(), {.max_bytes = 1});
  settle(poor);
  EXPECT_THAT(poor.sizes(), IsEmpty());
  SizeLearner never(f, make_inputs(), {.busy_fraction = 0});
  EXPECT_EQ(never.between_calls().kind, Kind::kNothing);
  EXPECT_EQ(stats().recordings, 0u);
  EXPECT_EQ(learner.idle(1us).kind, Kind::kRecorded);  // the first one may take any time
}

// The times grow with the sizes, which is known before any measurement.
TEST_P(SizeLearnerTest, NoMoreSizesAreRecordedThanMayBe) {
  const Function f = doubled();
  SizeLearner learner(f, make_inputs(), {.max_sizes = 2});
  for (int round = 0; round < 4; ++round) {
    const std::int64_t largest = 2 + static_cast<std::int64_t>(random_() % 4000);
    for (int i = 0; i < 200; ++i)
      call(f, 1 + static_cast<std::int64_t>(random_()) % largest);
    settle(learner);
    EXPECT_THAT(learner.sizes(), AllOf(SizeIs(Le(2u)), Contains(::testing::Ge(1))));
    EXPECT_LE(recording_count(), 4u);  // two places for each
  }
}

TEST_P(SizeLearnerTest, SizesDroppedByReleaseMemoryAreRecordedAgainWithoutACall) {
  const Function f = doubled();
  SizeLearner learner(f, make_inputs());
  call(f, 6);
  settle(learner);
  context().release_memory();
  EXPECT_EQ(call(f, 6), Outcome::kRunEagerly);
  context().release_memory();

  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kRecorded);

  EXPECT_THAT(learner.sizes(), ElementsAre(6));
  EXPECT_EQ(call(f, 6), Outcome::kReplay);
}

TEST_P(SizeLearnerTest, AnIntegerOfTheKeyIsLearnedToo) {
  const auto f =
      compile(context(), "scaled",
              [](Tensor x) { return affine(x, static_cast<float>(current_key().number("k")), 0); },
              {.keys = {{.name = "k", .policy = AxisPolicy::kLearned}}});
  SizeLearner learner(f, [this](const CallSizes&) { return std::vector{random_tensor({2})}; });
  const auto call_with = [&](std::int64_t k, float seen) {
    const std::vector<float> x = random_floats(2);
    EXPECT_EQ(values(f.keyed({{"k", k}})(tensor({2}, x))), affine_of(x, seen, 0));
  };
  call_with(5, 5);
  EXPECT_THAT(learner.idle(kPlenty).sizes, ElementsAre(5));
  call_with(3, 5);
  EXPECT_EQ(f.last_outcome()->outcome, Outcome::kReplay);
  call_with(6, 6);
}

TEST_P(SizeLearnerTest, AFunctionThatCannotBeCapturedIsTriedEverMoreSeldom) {
  const auto f = compile(context(), "reads",
                         [](Tensor x) {
                           x.storage()->stream().synchronize();
                           return affine(x, 2, 0);
                         },
                         {.inputs = {{.dynamic = {{0, "n"}}}},
                          .axes = {{.name = "n", .policy = AxisPolicy::kLearned}}});
  SizeLearner learner(f, make_inputs());
  int failed = 0;
  for (int i = 0; i < 500; ++i) {
    (void)f(random_tensor({1 + static_cast<std::int64_t>(random_() % 50)}));
    const LearnerStep step = learner.idle(kPlenty);
    EXPECT_NE(step.kind, Kind::kRecorded);
    if (step.kind != Kind::kFailed) continue;
    EXPECT_NE(step.why, "");
    ++failed;
  }
  EXPECT_GE(failed, 3);
  EXPECT_LE(failed, 5);
  EXPECT_THAT(learner.sizes(), IsEmpty());
}

TEST_P(SizeLearnerTest, AFailureLeavesTheSizesUnchanged) {
  ContextOptions options;
  options.group = std::move(make_thread_groups(1)[0]);  // uses sizes as costs
  make_context(options);
  const Function f = doubled();
  bool throws = false;
  SizeLearner learner(f, [&](const CallSizes& sizes) {
    if (throws) throw std::runtime_error("no memory for inputs");
    return std::vector<Tensor>{random_tensor({sizes["n"]})};
  });
  call(f, 4);
  settle(learner);
  for (int i = 0; i < 100; ++i)
    call(f, 400);
  throws = true;
  EXPECT_THAT([&] { learner.idle(kPlenty); },
              ThrowsMessage<std::runtime_error>(HasSubstr("no memory for inputs")));
  EXPECT_THAT(learner.sizes(), ElementsAre(4));
  EXPECT_EQ(call(f, 3), Outcome::kReplay);
  EXPECT_EQ(call(f, 5), Outcome::kRunEagerly);
  throws = false;
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kNothing);  // it waits for more calls
  for (int i = 0; i < 64; ++i)
    call(f, 400);
  settle(learner);
  EXPECT_THAT(learner.sizes(), Contains(400));
}

// make_inputs throws after one of two recordings, when the learner asks for inputs to measure.
TEST_P(SizeLearnerTest, RecordingsOfASizeThatFailsGo) {
  const Function f = doubled();
  int made = 0;
  SizeLearner learner(f, [&](const CallSizes& sizes) {
    if (++made == 2) throw std::runtime_error("no memory to measure");
    return std::vector<Tensor>{random_tensor({sizes["n"]})};
  });
  call(f, 4);
  EXPECT_THROW(learner.idle(kPlenty), std::runtime_error);
  EXPECT_EQ(recording_count(), 0u);
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(call(f, 4), Outcome::kRunEagerly);
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kRecorded);
}

TEST_P(SizeLearnerTest, InsideAStepItIsRefusedAndWhileTheStreamIsCapturedNothingIsDone) {
  SizeLearner* inside = nullptr;
  const auto f = compile(context(), "f",
                         [&](Tensor x) {
                           if (inside != nullptr) {
                             EXPECT_THROW(inside->idle(kPlenty), ConcurrentUse);
                           }
                           return affine(x, 2, 0);
                         },
                         {.inputs = {{.dynamic = {{0, "n"}}}},
                          .axes = {{.name = "n", .policy = AxisPolicy::kLearned}}});
  SizeLearner learner(f, make_inputs());
  inside = &learner;
  (void)f(random_tensor({4}));
  inside = nullptr;
  const Stream mine(device());
  {
    const StreamScope scope(mine);
    Capture capture(mine, CaptureMode::kThreadLocal);
    EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kNothing);
    Graph graph;
    (void)capture.end(&graph);
  }
  EXPECT_EQ(stats().recordings, 0u);
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kRecorded);
}

TEST_P(SizeLearnerTest, AFrozenFunctionLearnsNothing) {
  const Function f = doubled();
  SizeLearner learner(f, make_inputs());
  call(f, 4);
  f.freeze();
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kNothing);
  f.unfreeze();
  EXPECT_EQ(learner.idle(kPlenty).kind, Kind::kRecorded);
}

TEST_P(SizeLearnerTest, FunctionsAndOptionsThatCannotLearnAreRefused) {
  const auto plain = compile(context(), "plain", [](Tensor x) { return affine(x, 2, 0); });
  EXPECT_THAT(
      [&] { SizeLearner(plain, make_inputs()); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("'plain'"), HasSubstr("has no axis"))));
  const Function f = doubled();
  EXPECT_THAT([&] { SizeLearner(f, nullptr); },
              ThrowsMessage<InvalidArgument>(HasSubstr("without make_inputs")));
  for (const LearnOptions& bad :
       {LearnOptions{.max_sizes = 0}, LearnOptions{.max_bytes = 0},
        LearnOptions{.busy_fraction = 1.5}, LearnOptions{.busy_fraction = -1}}) {
    EXPECT_THAT([&] { SizeLearner(f, make_inputs(), bad); },
                ThrowsMessage<InvalidArgument>(HasSubstr("must be above 0")));
  }
  EXPECT_THAT(
      [&] {
        Steps(context(), "engine", {.keys = {{.name = "k", .policy = AxisPolicy::kLearned}}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("not for Steps")));
  CompileOptions options = learned_rows();
  options.axes[0].sizes = {4};
  EXPECT_THAT([&] { doubled(options); },
              ThrowsMessage<InvalidArgument>(HasSubstr("a policy that takes none")));
}

// Each result equals that of an eager run, in random sequences of learning, eviction, held outputs
// and release.
TEST_P(SizeLearnerTest, RandomProgramsAreEqualToEagerOnes) {
  for (int program = 0; program < 10; ++program) {
    ContextOptions options;
    options.extensions = {verify({.every = random_() % 3})};
    if (random_() % 2 == 0) {
      options.max_recordings = 1 + random_() % 6;
      options.at_limit = AtLimit::kEvict;
    }
    make_context(options);
    bool throws = false;  // in the step function, and in make_inputs
    const Function f = compile(
        context(), "doubled",
        [&](Tensor x) {
          Tensor y = affine(x, 2, 0);
          if (throws && random_() % 4 == 0) throw std::runtime_error("planted");
          return y;
        },
        learned_rows());
    SizeLearner learner(f,
                        [&](const CallSizes& sizes) {
                          if (throws && random_() % 8 == 0) throw std::runtime_error("planted");
                          return std::vector<Tensor>{random_tensor({sizes["n"]})};
                        },
                        {.max_sizes = 1 + random_() % 4, .held_outputs = random_() % 3});
    std::vector<std::pair<Tensor, std::vector<float>>> held;
    std::int64_t largest = 1 + static_cast<std::int64_t>(random_() % 64);
    for (int deed = 0; deed < 120; ++deed) {
      switch (random_() % 16) {
        case 0:
          context().release_memory();
          break;
        case 1:
          largest = 1 + static_cast<std::int64_t>(random_() % 64);
          break;
        case 2:
          held.clear();
          break;
        case 3:
          held.clear();
          context().mark_step();
          break;
        case 4:
        case 5:
          throws = random_() % 2 == 0;
          try {
            (void)learner.idle(kPlenty);
          } catch (const std::runtime_error& error) {
            ASSERT_STREQ(error.what(), "planted");
          }
          throws = false;
          break;
        default: {
          const std::int64_t size = 1 + static_cast<std::int64_t>(random_()) % largest;
          const std::vector<float> x = random_floats(size);
          held.emplace_back(f(tensor({size}, x)), affine_of(x, 2, 0));
          if (held.size() > 3) held.erase(held.begin());
        }
      }
      for (const auto& [y, expected] : held)
        ASSERT_EQ(values(y), expected) << "program " << program << ", deed " << deed;
      validate();
    }
  }
}

// In a group, sizes are used as costs, which makes the decisions predictable.
TEST_P(SizeLearnerTest, CallsOfLongAgoAreForgotten) {
  ContextOptions options;
  options.group = std::move(make_thread_groups(1)[0]);
  make_context(options);
  const Function f = doubled();
  SizeLearner learner(f, make_inputs(), {.max_sizes = 1});
  for (int i = 0; i < 300; ++i)
    call(f, 64);
  settle(learner);
  EXPECT_THAT(learner.sizes(), ElementsAre(64));
  for (int i = 0; i < 1500; ++i)
    call(f, 4);
  settle(learner);
  EXPECT_THAT(learner.sizes(), ElementsAre(4));
}

TEST_P(SizeLearnerTest, DrawsOfALearnerAreUndone) {
  Generator generator(7);
  const auto f = compile(
      context(), "noise", [=](Tensor x) { return uniform(Shape{x.dim(0)}, generator); },
      learned_rows());
  SizeLearner learner(f, make_inputs(), {.generators = {generator}});
  for (int i = 0; i < 8; ++i) {
    (void)f(random_tensor({4}));
    const GeneratorState before = generator.state();
    (void)learner.idle(kPlenty);
    EXPECT_EQ(generator.state(), before) << i;
  }
  EXPECT_THAT(learner.sizes(), ElementsAre(4));
}

// Times differ between ranks; their recordings must not.
TEST_P(SizeLearnerTest, RanksLearnTheSameSizes) {
  constexpr int kRanks = 2;
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(kRanks, 20'000ms);
  std::vector<Sizes> sizes(kRanks);
  const unsigned seed = random_();
  run_on_ranks(kRanks, [&](int rank) {
    std::mt19937 random(seed);
    ContextOptions options;
    options.group = std::move(groups[static_cast<std::size_t>(rank)]);
    Context context(device_of_rank(device(), rank), options);
    const auto f = compile(
        context, "doubled", [](Tensor x) { return affine(x, 2, 0); }, learned_rows());
    const auto make = [&](std::int64_t size) {
      const std::vector<float> threes(static_cast<std::size_t>(size), 3);
      return from_host(Shape{size}, std::span<const float>(threes), context.device());
    };
    SizeLearner learner(f, [&](const CallSizes& of) { return std::vector{make(of["n"])}; },
                        {.max_sizes = 3});
    for (int i = 0; i < 100; ++i) {
      const std::int64_t size = 1 + static_cast<std::int64_t>(random()) % 30;
      EXPECT_EQ(f(make(size)).to_vector<float>(),
                std::vector<float>(static_cast<std::size_t>(size), 6));
      (void)learner.idle(rank == 0 ? kPlenty : 1'000'000us);
    }
    sizes[static_cast<std::size_t>(rank)] = learner.sizes();
  });
  EXPECT_EQ(sizes[0], sizes[1]);
  EXPECT_THAT(sizes[0], SizeIs(3));
}

}  // namespace
}  // namespace cgtree::testing
