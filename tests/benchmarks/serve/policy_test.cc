// Policies: their buckets, their options, and counts of steps.
#include "benchmarks/serve/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace cgtree::serve {
namespace {

constexpr SizeLimits kLimits = {.batch = 12, .length = 6};

StepSizes some_sizes() {
  return {.steps = 100,
          .decodes = {{2, 50}, {3, 10}, {9, 40}},
          .prefills = {{{1, 6}, 80}, {{1, 2}, 10}, {{4, 6}, 10}}};
}

TEST(SizePlanTest, ExactCapsTheSizesOfEachAxisAndPadsNothing) {
  const SizePlan plan(Policy::kExact, 4, kLimits, some_sizes());
  const CompileOptions decode = plan.decode(CacheUse::kStatic, true);

  ASSERT_EQ(decode.axes.size(), 1u);
  EXPECT_EQ(decode.axes[0].policy, AxisPolicy::kExact);
  EXPECT_EQ(decode.axes[0].max_sizes, 4u);
  EXPECT_EQ(decode.axes[0].at_max_sizes, AtMaxSizes::kEvict);
  EXPECT_EQ(decode.max_recordings, 4u);
  EXPECT_EQ(decode.at_limit, AtLimit::kEvict);
  EXPECT_EQ(plan.decode_rows(7), 7);
  EXPECT_EQ(plan.prefill_rows(3, 5), 15);
}

TEST(SizePlanTest, BucketsArePowersOfTwoAndTheLargestSize) {
  const SizePlan plan(Policy::kBuckets, 4, kLimits, some_sizes());

  EXPECT_EQ(plan.decode(CacheUse::kStatic, true).axes[0].sizes, (Sizes{1, 2, 4, 8, 12}));
  EXPECT_EQ(plan.prefill(CacheUse::kStatic, true).axes[0].sizes, (Sizes{1, 2, 4, 8, 12}));
  EXPECT_EQ(plan.prefill(CacheUse::kStatic, true).axes[1].sizes, (Sizes{1, 2, 4, 6}));
  EXPECT_EQ(plan.decode_rows(9), 12);
  EXPECT_EQ(plan.prefill_rows(3, 5), 4 * 6);
}

TEST(SizePlanTest, SuggestedBucketsAreThoseThatPadTheTraceLeast) {
  const SizePlan plan(Policy::kSuggested, 2, kLimits, some_sizes());

  EXPECT_EQ(plan.decode(CacheUse::kStatic, true).axes[0].sizes, (Sizes{3, 9}));
  // One length and two batches: 80 * 6 + 10 * 6 + 10 * 24 rows; two lengths and one batch need
  // more.
  EXPECT_EQ(plan.prefill(CacheUse::kStatic, true).axes[0].sizes, (Sizes{1, 4}));
  EXPECT_EQ(plan.prefill(CacheUse::kStatic, true).axes[1].sizes, (Sizes{6}));
}

TEST(SizePlanTest, ListedBatchesEndWithTheLargest) {
  const std::vector<std::int64_t> listed = {1, 3, kLimits.batch, kLimits.batch + 1};
  const SizePlan plan(Policy::kListed, 0, kLimits, some_sizes(), listed);

  EXPECT_EQ(plan.buckets().decode_batch, (std::vector<std::int64_t>{1, 3, kLimits.batch}));
  EXPECT_EQ(plan.decode_rows(2), 3);
}

TEST(SizePlanTest, BatchesOfDecodeAreLearnedAlone) {
  const SizePlan plan(Policy::kLearned, 4, kLimits, some_sizes());

  EXPECT_EQ(plan.decode(CacheUse::kStatic, true).axes[0].policy, AxisPolicy::kLearned);
  EXPECT_EQ(plan.prefill(CacheUse::kStatic, true).axes[0].sizes, (Sizes{1, 2, 4, 8, 12}));
  ASSERT_TRUE(plan.learns());
  EXPECT_EQ(plan.learns()->max_sizes, 4u);
  EXPECT_FALSE(SizePlan(Policy::kBuckets, 4, kLimits, some_sizes()).learns());
}

TEST(SizePlanTest, AllCombinationsOfSuggestedBucketsFitTheBudget) {
  for (std::int64_t budget = 1; budget <= 10; ++budget) {
    const CompileOptions prefill = SizePlan(Policy::kSuggested, budget, kLimits, some_sizes())
                                       .prefill(CacheUse::kStatic, true);
    EXPECT_LE(prefill.axes[0].sizes.size() * prefill.axes[1].sizes.size(),
              static_cast<std::size_t>(budget));
  }
}

TEST(SizePlanTest, WithoutABudgetNothingIsLimited) {
  const SizePlan exact(Policy::kExact, 0, kLimits, some_sizes());
  const SizePlan suggested(Policy::kSuggested, 0, kLimits, some_sizes());

  EXPECT_EQ(exact.decode(CacheUse::kStatic, true).axes[0].max_sizes, SIZE_MAX);
  EXPECT_EQ(exact.decode(CacheUse::kStatic, true).max_recordings, SIZE_MAX);
  EXPECT_EQ(suggested.decode(CacheUse::kStatic, true).axes[0].sizes, (Sizes{2, 3, 9}));
}

TEST(SizePlanTest, ATraceWithoutDecodeStepsHasABucketAllTheSame) {
  const SizePlan plan(Policy::kSuggested, 4, kLimits, {.steps = 1, .prefills = {{{1, 1}, 1}}});

  EXPECT_EQ(plan.decode(CacheUse::kStatic, true).axes[0].sizes, (Sizes{12}));
}

TEST(StepSizesTest, ADryRunCountsTheSizesOfAllSteps) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  const std::vector<Request> trace = seeded_requests(seed, 60);
  const SchedulerOptions options{.max_batch = 5, .max_prompt = 16, .seed = seed};
  const std::vector<std::int32_t> tokens(5);
  Scheduler scheduler(trace, options);
  StepSizes seen;

  for (; scheduler.begin_step(); ++seen.steps) {
    std::int64_t length = 0;
    for (const Prompt& prompt : scheduler.prompts())
      length = std::max(length, prompt.length);
    if (length > 0) ++seen.prefills[{std::ssize(scheduler.prompts()), length}];
    if (!scheduler.rows().empty()) ++seen.decodes[std::ssize(scheduler.rows())];
    scheduler.end_step(tokens, tokens);
  }

  const StepSizes counted = count_sizes(trace, options);
  EXPECT_EQ(counted.steps, seen.steps);
  EXPECT_EQ(counted.prefills, seen.prefills);
  EXPECT_EQ(counted.decodes, seen.decodes);
}

}  // namespace
}  // namespace cgtree::serve
