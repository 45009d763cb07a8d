// Several learned axes and integers of keys, alone or beside axes that are not learned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "extensions/ranks/group.h"
#include "extensions/sizes/precapture.h"
#include "extensions/sizes/size_learner.h"
#include "extensions/verify/verify.h"
#include "interop/tensor/copy.h"
#include "tests/cgtree/size_learner_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class SizeLearnerAxesTest : public LearnerTest {
 protected:
  static constexpr AxisPolicy kLearned = AxisPolicy::kLearned;

  void SetUp() override {
    LearnerTest::SetUp();
    if (!IsSkipped()) make_context(in_group_of_one());
  }

  // A function that returns 2 x; "m" has `columns` as its policy.
  Function table(AxisPolicy columns) {
    const std::vector<DynamicAxis> axes = {{0, "n"}, {1, "m"}};
    return compile(context(), "table", [](Tensor x) { return affine(x, 2, 0); },
                   {.inputs = {{.dynamic = axes}},
                    .axes = {{.name = "n", .policy = kLearned}, {.name = "m", .policy = columns}},
                    .outputs = {{.dynamic = axes}}});
  }
  MakeInputs make_tables() {
    return [this](const CallSizes& sizes) {
      return std::vector<Tensor>{random_tensor({sizes["n"], sizes["m"]})};
    };
  }
  Outcome call_table(const Function& f, std::int64_t n, std::int64_t m) {
    const std::vector<float> x = random_floats(n * m);
    const Tensor y = f(tensor({n, m}, x));
    const Tensor dense = tensor({n, m}, x);
    copy_elements(context().stream(), dense, y);
    context().synchronize();
    EXPECT_EQ(values(dense), affine_of(x, 2, 0));
    return f.last_outcome()->outcome;
  }
};
CGTREE_ON_ALL_DEVICES(SizeLearnerAxesTest);

TEST_P(SizeLearnerAxesTest, OtherAxesKeepTheirPolicies) {
  const Function f = compile(context(), "doubled", [](Tensor x) { return affine(x, 2, 0); },
                             {.inputs = {{.dynamic = {{0, "n"}, {1, "m"}}}},
                              .buckets = {{"m", {2, 4}}},
                              .axes = {{.name = "n", .policy = kLearned}},
                              .outputs = {{.dynamic = {{0, "n"}, {1, "m"}}}}});
  SizeLearner learner(f, make_tables());
  call_table(f, 3, 1);
  EXPECT_EQ(learner.idle(kPlenty).kind, LearnerStep::Kind::kRecorded);
  for (const std::int64_t m : {1, 2, 3, 4})
    EXPECT_EQ(call_table(f, 2, m), Outcome::kReplay) << m;
}

// Calls have few rows with many columns, or many rows with few: one size per axis would be
// wasteful.
TEST_P(SizeLearnerAxesTest, CombinationsOfTwoAxesAreLearned) {
  const Function f = table(kLearned);
  SizeLearner learner(f, make_tables(), {.max_sizes = 2});
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(call_table(f, 2, 60), Outcome::kRunEagerly);
    EXPECT_EQ(call_table(f, 60, 2), Outcome::kRunEagerly);
  }
  settle(learner);
  EXPECT_THAT(learner.points(), ElementsAre(Sizes{2, 60}, Sizes{60, 2}));
  EXPECT_THAT(learner.sizes(0), ElementsAre(2, 60));
  EXPECT_THAT(learner.sizes(1), ElementsAre(2, 60));
  EXPECT_EQ(stats().recordings, 4u);  // two places for each, and no other combination
  for (const auto& [n, m] : {std::pair(2, 60), std::pair(1, 59), std::pair(60, 2), std::pair(3, 1)})
    EXPECT_EQ(call_table(f, n, m), Outcome::kReplay) << n << " x " << m;
  EXPECT_EQ(call_table(f, 3, 3), Outcome::kRunEagerly);
}

TEST_P(SizeLearnerAxesTest, ASecondLearnerTakesOverCombinations) {
  const Function f = table(kLearned);
  {
    SizeLearner first(f, make_tables());
    call_table(f, 2, 60);
    call_table(f, 60, 2);
    settle(first);
  }
  SizeLearner second(f, make_tables());
  EXPECT_THAT(second.points(), SizeIs(2));
  EXPECT_EQ(call_table(f, 2, 50), Outcome::kReplay);
}

// Calls have 3 and 5 columns at first; calls with 4 columns come later.
TEST_P(SizeLearnerAxesTest, ASizeIsRecordedWithWhatCallsHadOfAnAxisThatListsNone) {
  const Function f = table(AxisPolicy::kExact);
  SizeLearner learner(f, make_tables(), {.max_sizes = 1});
  for (int i = 0; i < 4; ++i) {
    call_table(f, 8, 3);
    call_table(f, 7, 5);
  }
  settle(learner);
  EXPECT_THAT(learner.sizes(), ElementsAre(8));
  for (const std::int64_t m : {3, 5})
    EXPECT_EQ(call_table(f, 6, m), Outcome::kReplay) << m;
  EXPECT_EQ(call_table(f, 6, 4), Outcome::kRunEagerly);
  settle(learner);
  for (int i = 0; i < 16; ++i)
    call_table(f, 6, 4);
  settle(learner);
  EXPECT_EQ(call_table(f, 6, 4), Outcome::kReplay);
  EXPECT_THAT(learner.sizes(), ElementsAre(8));
}

// The gain and the limit apply to all keys together.
TEST_P(SizeLearnerAxesTest, KeysShareTheSizesAndTheLimit) {
  const auto f =
      compile(context(), "scaled",
              [](Tensor x) { return affine(x, static_cast<float>(current_key().number("k")), 0); },
              {.inputs = {{.dynamic = {{0, "n"}}}},
               .axes = {{.name = "n", .policy = kLearned}},
               .keys = {{.name = "k", .policy = AxisPolicy::kExact}},
               .outputs = {{.dynamic = {{0, "n"}}}}});
  SizeLearner learner(f, make_inputs(), {.max_sizes = 2});
  const auto call_with = [&](std::int64_t n, std::int64_t k) {
    const std::vector<float> x = random_floats(n);
    EXPECT_EQ(values(f.keyed({{"k", k}})(tensor({n}, x))), affine_of(x, static_cast<float>(k), 0));
    return f.last_outcome()->outcome;
  };
  for (int i = 0; i < 20; ++i) {
    call_with(100, 1 + i % 3);  // for no key the most frequent size
    call_with(10, 1);
    call_with(40, 2);
  }
  settle(learner);
  EXPECT_THAT(learner.sizes(), ElementsAre(40, 100));
  for (const std::int64_t k : {1, 2, 3}) {
    EXPECT_EQ(call_with(35, k), Outcome::kReplay) << k;
    EXPECT_EQ(call_with(95, k), Outcome::kReplay) << k;
  }
}

TEST_P(SizeLearnerAxesTest, AnAxisAndAnIntegerOfTheKeyAreLearnedTogether) {
  const auto f =
      compile(context(), "scaled",
              [](Tensor x) { return affine(x, static_cast<float>(current_key().number("k")), 0); },
              {.inputs = {{.dynamic = {{0, "n"}}}},
               .axes = {{.name = "n", .policy = kLearned}},
               .keys = {{.name = "k", .policy = kLearned}},
               .outputs = {{.dynamic = {{0, "n"}}}}});
  SizeLearner learner(f, make_inputs());
  const auto call_with = [&](std::int64_t n, std::int64_t k, float seen) {
    const std::vector<float> x = random_floats(n);
    EXPECT_EQ(values(f.keyed({{"k", k}})(tensor({n}, x))), affine_of(x, seen, 0));
  };
  call_with(50, 3, 3);
  call_with(3, 50, 50);
  settle(learner);
  EXPECT_THAT(learner.points(), ElementsAre(Sizes{3, 50}, Sizes{50, 3}));
  call_with(40, 2, 3);
  EXPECT_EQ(f.last_outcome()->outcome, Outcome::kReplay);
  call_with(2, 40, 50);
  EXPECT_EQ(f.last_outcome()->outcome, Outcome::kReplay);
}

// Results equal those of eager runs and limits hold, in random sequences of learning, eviction and
// release.
TEST_P(SizeLearnerAxesTest, RandomProgramsOfTwoAxesAreEqualToEagerOnes) {
  for (int program = 0; program < 6; ++program) {
    ContextOptions options;
    if (program % 2 == 0) options.extensions = {verify({.every = 3})};
    if (random_() % 2 == 0) {
      options.max_recordings = 2 + random_() % 6;
      options.at_limit = AtLimit::kEvict;
    }
    make_context(options);
    const Function f = table(random_() % 2 == 0 ? kLearned : AxisPolicy::kExact);
    const std::size_t most = 1 + random_() % 4;
    SizeLearner learner(f, make_tables(), {.max_sizes = most, .held_outputs = random_() % 2});
    for (int deed = 0; deed < 150; ++deed) {
      if (random_() % 4 == 0) {
        (void)learner.idle(kPlenty);
        ASSERT_LE(learner.points().size(), most);
      } else if (random_() % 16 == 0) {
        (void)context().release_memory();
      } else {
        call_table(f, 1 + static_cast<std::int64_t>(random_() % 12),
                   1 + static_cast<std::int64_t>(random_() % 5));
      }
      validate();
    }
  }
}

}  // namespace
}  // namespace cgtree::testing
