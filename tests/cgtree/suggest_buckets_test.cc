// suggest_buckets() against all lists there are.
#include "cgtree/suggest_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "base/error.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

double total(const std::vector<SizeCount>& histogram, const std::vector<std::int64_t>& buckets,
             const BucketCost& cost) {
  double sum = 0;
  for (const SizeCount& entry : histogram) {
    const auto bucket = std::lower_bound(buckets.begin(), buckets.end(), entry.size);
    if (bucket == buckets.end()) return std::numeric_limits<double>::infinity();
    sum += static_cast<double>(entry.count) * cost(*bucket);
  }
  return sum;
}

// The least total of any subset of 1, 2, ..., largest, and the size of the smallest such subset.
std::pair<double, std::size_t> best(const std::vector<SizeCount>& histogram, std::int64_t largest,
                                    std::size_t max_buckets, const BucketCost& cost) {
  std::pair<double, std::size_t> found{std::numeric_limits<double>::infinity(), 0};
  for (std::uint32_t set = 1; set < (1u << largest); ++set) {
    std::vector<std::int64_t> buckets;
    for (std::int64_t size = 1; size <= largest; ++size) {
      if ((set >> (size - 1) & 1) != 0) buckets.push_back(size);
    }
    if (buckets.size() > max_buckets) continue;
    found = std::min(found, {total(histogram, buckets, cost), buckets.size()});
  }
  return found;
}

TEST(SuggestBucketsTest, AsManyBucketsAsSizesPadNothing) {
  EXPECT_THAT(suggest_buckets(std::vector<SizeCount>{{4, 1}, {2, 9}}, 8), ElementsAre(2, 4));
}

TEST(SuggestBucketsTest, OneBucketIsTheLargestSize) {
  EXPECT_THAT(suggest_buckets(std::vector<SizeCount>{{1, 1000}, {7, 1}}, 1), ElementsAre(7));
}

TEST(SuggestBucketsTest, BucketsGoWhereCallsAre) {
  const std::vector<SizeCount> histogram = {{1, 1}, {10, 100}, {11, 100}, {32, 1}};
  EXPECT_THAT(suggest_buckets(histogram, 2), ElementsAre(11, 32));
}

TEST(SuggestBucketsTest, WherePaddingIsFreeOneBucketServesAll) {
  const auto tiles = [](std::int64_t size) { return static_cast<double>((size + 7) / 8); };
  EXPECT_THAT(suggest_buckets(std::vector<SizeCount>{{1, 5}, {3, 5}, {8, 5}}, 3, tiles),
              ElementsAre(8));
}

TEST(SuggestBucketsTest, NothingSeenNeedsNoBucket) {
  EXPECT_THAT(suggest_buckets({}, 3), IsEmpty());
  EXPECT_THAT(suggest_buckets(std::vector<SizeCount>{{3, 0}}, 3), IsEmpty());
}

TEST(SuggestBucketsTest, WhatCannotBeAnsweredIsRefusedWithBothSides) {
  const std::vector<SizeCount> histogram = {{2, 1}, {3, 1}};
  EXPECT_THROW((void)suggest_buckets(histogram, 0), InvalidArgument);
  EXPECT_THROW((void)suggest_buckets(std::vector<SizeCount>{{0, 1}}, 1), InvalidArgument);
  try {
    (void)suggest_buckets(histogram, 1, [](std::int64_t size) { return -1.0 * size; });
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("size 2 costs -2, size 3 costs -3"));
  }
}

TEST(SuggestBucketsTest, NoListOfSizesIsCheaperOrAsCheapAndShorter) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto up_to = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(random);
  };
  for (int round = 0; round < 150; ++round) {
    const std::int64_t largest = 1 + up_to(8);
    std::vector<SizeCount> histogram;
    for (std::int64_t entry = up_to(9); entry >= 0; --entry)
      histogram.push_back({1 + up_to(largest - 1), static_cast<std::uint64_t>(1 + up_to(20))});
    const std::int64_t tile = 1 + up_to(3);
    const std::int64_t fixed = up_to(4);
    const BucketCost cost = [=](std::int64_t size) {
      return static_cast<double>(fixed + (size + tile - 1) / tile);
    };
    const auto max_buckets = static_cast<std::size_t>(1 + up_to(4));

    const std::vector<std::int64_t> buckets = suggest_buckets(histogram, max_buckets, cost);

    const auto [least, shortest] = best(histogram, largest, max_buckets, cost);
    EXPECT_EQ(total(histogram, buckets, cost), least);
    EXPECT_EQ(buckets.size(), shortest);
    EXPECT_TRUE(std::is_sorted(buckets.begin(), buckets.end()));
  }
}

}  // namespace
}  // namespace cgtree::testing
