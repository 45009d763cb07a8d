// AxisRule as a table: each policy with each size, and the sizes that it learns.
#include "cgtree/axes/axis_rule.h"

#include <gtest/gtest.h>

namespace cgtree::testing {
namespace {

using Kind = AxisChoice::Kind;

// The rule sees the size `given` as `seen`.
void expect_seen(const AxisRule& rule, std::int64_t given, std::int64_t seen) {
  EXPECT_EQ(rule.choose(given).kind, Kind::kSize) << given;
  EXPECT_EQ(rule.choose(given).padded, seen) << given;
  EXPECT_EQ(rule.why_not(given), "") << given;
}
void expect_refused(const AxisRule& rule, std::int64_t given, Kind kind, SkipReason reason,
                    const std::string& why) {
  EXPECT_EQ(rule.choose(given).kind, kind) << given;
  EXPECT_EQ(rule.choose(given).reason, reason) << given;
  EXPECT_EQ(rule.why_not(given), why);
}

TEST(AxisRuleTest, ABucketHoldsAllSizesUpToItsOwn) {
  const AxisRule rule({.name = "batch", .policy = AxisPolicy::kBuckets, .sizes = {1, 4, 8}});

  expect_seen(rule, 0, 1);
  expect_seen(rule, 1, 1);
  expect_seen(rule, 2, 4);
  expect_seen(rule, 4, 4);
  expect_seen(rule, 5, 8);
  expect_seen(rule, 8, 8);
  expect_refused(rule, 9, Kind::kSkip, SkipReason::kAboveLargestBucket,
                 "axis 'batch' is 9, the largest of its 3 buckets is 8");
  EXPECT_TRUE(rule.pads());
}

TEST(AxisRuleTest, AboveTheLargestBucketIsAnErrorWhereOptionsSaySo) {
  const AxisRule rule({.name = "batch",
                       .policy = AxisPolicy::kBuckets,
                       .sizes = {8},
                       .above_largest = AboveLargest::kThrow});

  expect_seen(rule, 8, 8);
  expect_refused(rule, 9, Kind::kThrow, SkipReason::kAboveLargestBucket,
                 "axis 'batch' is 9, the largest of its 1 buckets is 8");
}

TEST(AxisRuleTest, MultiplesAndPowersOfTwoHoldAllSizesUpToTheirOwn) {
  const AxisRule multiples({.name = "n", .policy = AxisPolicy::kMultiples, .multiple_of = 6});
  expect_seen(multiples, 0, 0);
  expect_seen(multiples, 1, 6);
  expect_seen(multiples, 6, 6);
  expect_seen(multiples, 7, 12);
  expect_refused(multiples, INT64_MAX, Kind::kSkip, SkipReason::kAboveLargestBucket,
                 "axis 'n' is 9223372036854775807, the largest to pad to is 9223372036854775806");
  const AxisRule powers({.name = "k", .policy = AxisPolicy::kPowersOfTwo, .largest = 8}, true);
  expect_seen(powers, 0, 1);
  expect_seen(powers, 3, 4);
  expect_seen(powers, 8, 8);
  expect_refused(powers, 9, Kind::kSkip, SkipReason::kAboveLargestBucket,
                 "'k' of the key is 9, the largest to pad to is 8");
  EXPECT_TRUE(multiples.pads());
  EXPECT_TRUE(powers.pads());
  const AxisRule unlimited({.name = "k", .policy = AxisPolicy::kPowersOfTwo});
  expect_seen(unlimited, (INT64_MAX >> 1) + 1, (INT64_MAX >> 1) + 1);
  EXPECT_EQ(unlimited.choose((INT64_MAX >> 1) + 2).kind, Kind::kSkip);
}

TEST(AxisRuleTest, AListAllowsItsSizesAndNoOther) {
  const AxisRule rule({.name = "n", .policy = AxisPolicy::kAllowList, .sizes = {2, 4}});

  expect_seen(rule, 2, 2);
  expect_seen(rule, 4, 4);
  for (const std::int64_t given : {0, 1, 3, 5}) {
    expect_refused(
        rule, given, Kind::kSkip, SkipReason::kSizeNotListed,
        "axis 'n' is " + std::to_string(given) + ", which is none of the 2 sizes of its list");
  }
  EXPECT_FALSE(rule.pads());
}

TEST(AxisRuleTest, AnAxisThatHasVariedIsSkippedForEver) {
  AxisRule rule({.name = "n", .policy = AxisPolicy::kSkip});

  expect_seen(rule, 3, 3);
  expect_seen(rule, 5, 5);
  rule.note(3);
  expect_seen(rule, 3, 3);
  expect_refused(rule, 5, Kind::kSkip, SkipReason::kDynamicAxis,
                 "axis 'n' is 5, the first call's was 3");
  rule.note(5);
  expect_refused(rule, 3, Kind::kSkip, SkipReason::kDynamicAxis,
                 "axis 'n' is 3, the first call's was 3");
}

TEST(AxisRuleTest, WithoutACapEverySizeIsItsOwn) {
  AxisRule rule({.name = "n"});
  for (std::int64_t size = 0; size < 100; ++size) {
    expect_seen(rule, size, size);
    EXPECT_EQ(rule.admit(size), std::nullopt);
  }
  EXPECT_FALSE(rule.pads());
}

TEST(AxisRuleTest, AtTheCapAnotherSizeRunsEagerly) {
  AxisRule rule({.name = "n", .max_sizes = 2});
  EXPECT_EQ(rule.admit(3), std::nullopt);
  expect_seen(rule, 5, 5);
  EXPECT_EQ(rule.admit(5), std::nullopt);

  expect_seen(rule, 3, 3);
  expect_seen(rule, 5, 5);
  expect_refused(rule, 4, Kind::kSkip, SkipReason::kSizeLimit,
                 "axis 'n' is 4, and 2 other sizes are recorded, as many as max_sizes");
}

TEST(AxisRuleTest, AtTheCapTheNextLargerIsAskedFor) {
  AxisRule rule({.name = "n", .max_sizes = 1, .at_max_sizes = AtMaxSizes::kNextLarger});
  EXPECT_EQ(rule.admit(5), std::nullopt);

  EXPECT_EQ(rule.choose(4).kind, Kind::kNextLarger);
  expect_seen(rule, 5, 5);
  EXPECT_TRUE(rule.pads());
}

TEST(AxisRuleTest, AtTheCapTheSizeUsedLongestAgoGoes) {
  AxisRule rule({.name = "n", .max_sizes = 2, .at_max_sizes = AtMaxSizes::kEvict});
  EXPECT_EQ(rule.admit(3), std::nullopt);
  EXPECT_EQ(rule.admit(5), std::nullopt);
  rule.note(3);

  expect_seen(rule, 7, 7);
  EXPECT_EQ(rule.admit(7), 5);
  EXPECT_EQ(rule.admit(7), std::nullopt);
  EXPECT_EQ(rule.admit(5), 3);
}

}  // namespace
}  // namespace cgtree::testing
