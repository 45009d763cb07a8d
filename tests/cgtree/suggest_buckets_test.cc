// suggest_buckets() against all possible lists.
#include "extensions/sizes/suggest_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>

#include "base/error.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Counts = std::map<std::int64_t, std::uint64_t>;
using JointCounts = std::map<Sizes, std::uint64_t>;

double total(const Counts& histogram, const Sizes& buckets, const SizeCost& cost) {
  double sum = 0;
  for (const auto& [size, count] : histogram) {
    const auto bucket = std::lower_bound(buckets.begin(), buckets.end(), size);
    if (bucket == buckets.end()) return std::numeric_limits<double>::infinity();
    sum += static_cast<double>(count) * cost(*bucket);
  }
  return sum;
}

// The least total of any subset of 1, 2, ..., largest, and the size of the smallest such subset.
std::pair<double, std::size_t> best(const Counts& histogram, std::int64_t largest,
                                    std::size_t max_buckets, const SizeCost& cost) {
  std::pair<double, std::size_t> found{std::numeric_limits<double>::infinity(), 0};
  for (std::uint32_t set = 1; set < (1u << largest); ++set) {
    Sizes buckets;
    for (std::int64_t size = 1; size <= largest; ++size) {
      if ((set >> (size - 1) & 1) != 0) buckets.push_back(size);
    }
    if (buckets.size() > max_buckets) continue;
    found = std::min(found, {total(histogram, buckets, cost), buckets.size()});
  }
  return found;
}

TEST(SuggestBucketsTest, AsManyBucketsAsSizesPadNothing) {
  EXPECT_THAT(suggest_buckets(Counts{{4, 1}, {2, 9}}, 8), ElementsAre(2, 4));
}

TEST(SuggestBucketsTest, OneBucketIsTheLargestSize) {
  EXPECT_THAT(suggest_buckets(Counts{{1, 1000}, {7, 1}}, 1), ElementsAre(7));
}

TEST(SuggestBucketsTest, BucketsGoWhereCallsAre) {
  const Counts histogram = {{1, 1}, {10, 100}, {11, 100}, {32, 1}};
  EXPECT_THAT(suggest_buckets(histogram, 2), ElementsAre(11, 32));
}

TEST(SuggestBucketsTest, WherePaddingIsFreeOneBucketServesAll) {
  const auto tiles = [](std::int64_t size) { return static_cast<double>((size + 7) / 8); };
  EXPECT_THAT(suggest_buckets(Counts{{1, 5}, {3, 5}, {8, 5}}, 3, tiles), ElementsAre(8));
}

TEST(SuggestBucketsTest, NothingSeenNeedsNoBucket) {
  EXPECT_THAT(suggest_buckets(Counts(), 3), IsEmpty());
  EXPECT_THAT(suggest_buckets(Counts{{3, 0}}, 3), IsEmpty());
}

TEST(SuggestBucketsTest, ImpossibleRequestsAreRefusedWithBothSides) {
  const Counts histogram = {{2, 1}, {3, 1}};
  EXPECT_THROW((void)suggest_buckets(histogram, 0), InvalidArgument);
  EXPECT_THROW((void)suggest_buckets(Counts{{0, 1}}, 1), InvalidArgument);
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
    Counts histogram;
    for (std::int64_t entry = up_to(9); entry >= 0; --entry)
      histogram[1 + up_to(largest - 1)] += static_cast<std::uint64_t>(1 + up_to(20));
    const std::int64_t tile = 1 + up_to(3);
    const std::int64_t fixed = up_to(4);
    const SizeCost cost = [=](std::int64_t size) {
      return static_cast<double>(fixed + (size + tile - 1) / tile);
    };
    const auto max_buckets = static_cast<std::size_t>(1 + up_to(4));

    const Sizes buckets = suggest_buckets(histogram, max_buckets, cost);

    const auto [least, shortest] = best(histogram, largest, max_buckets, cost);
    EXPECT_EQ(total(histogram, buckets, cost), least);
    EXPECT_EQ(buckets.size(), shortest);
    EXPECT_TRUE(std::is_sorted(buckets.begin(), buckets.end()));
  }
}

// ---- Several axes at once ----

using Lists = std::vector<Sizes>;

double total(const JointCounts& histogram, const Lists& lists, const std::vector<SizeCost>& costs) {
  double sum = 0;
  for (const auto& [sizes, count] : histogram) {
    double cost = static_cast<double>(count);
    for (std::size_t axis = 0; axis < lists.size(); ++axis) {
      const auto bucket = std::lower_bound(lists[axis].begin(), lists[axis].end(), sizes[axis]);
      if (bucket == lists[axis].end()) return std::numeric_limits<double>::infinity();
      cost *= costs[axis](*bucket);
    }
    sum += cost;
  }
  return sum;
}

std::size_t combinations(const Lists& lists) {
  std::size_t count = 1;
  for (const auto& list : lists)
    count *= list.size();
  return count;
}

// The least total of all lists of sizes up to `largest` with at most `limit` combinations.
double least_of_all(const JointCounts& histogram, std::size_t axes, std::int64_t largest,
                    std::size_t limit, const std::vector<SizeCost>& costs, Lists lists = {}) {
  if (lists.size() == axes) return total(histogram, lists, costs);
  double least = std::numeric_limits<double>::infinity();
  for (std::uint32_t set = 1; set < (1u << largest); ++set) {
    Sizes list;
    for (std::int64_t size = 1; size <= largest; ++size) {
      if ((set >> (size - 1) & 1) != 0) list.push_back(size);
    }
    if (combinations(lists) * list.size() > limit) continue;
    lists.push_back(std::move(list));
    least = std::min(least, least_of_all(histogram, axes, largest, limit, costs, lists));
    lists.pop_back();
  }
  return least;
}

TEST(SuggestBucketsTest, ListsForSeveralAxesAreNearlyTheCheapestThereAre) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto up_to = [&](std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(random);
  };
  constexpr int kRounds = 100;
  int least = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::size_t axes = round % 4 == 0 ? 3 : 2;
    const std::int64_t largest = axes == 3 ? 3 : 5;
    JointCounts histogram;
    for (std::int64_t entry = up_to(9); entry >= 0; --entry) {
      Sizes sizes;
      for (std::size_t axis = 0; axis < axes; ++axis)
        sizes.push_back(1 + up_to(largest - 1));
      histogram[sizes] += static_cast<std::uint64_t>(1 + up_to(20));
    }
    std::vector<SizeCost> costs;
    for (std::size_t axis = 0; axis < axes; ++axis) {
      const std::int64_t fixed = up_to(4);
      costs.push_back([=](std::int64_t size) { return static_cast<double>(fixed + size); });
    }
    const auto limit = static_cast<std::size_t>(1 + up_to(11));

    const Lists lists = suggest_buckets(histogram, {.max_combinations = limit}, costs);

    ASSERT_EQ(lists.size(), axes);
    EXPECT_LE(combinations(lists), limit);
    const double best = least_of_all(histogram, axes, largest, limit, costs);
    const double found = total(histogram, lists, costs);
    EXPECT_GE(found, best);
    EXPECT_LE(found, 1.1 * best);
    least += found == best;
  }
  EXPECT_GE(least, kRounds * 9 / 10);
}

TEST(SuggestBucketsTest, ListsForOneAxisAloneAreThoseOfThatAxis) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    Counts one;
    for (unsigned entry = random() % 300; entry > 0; --entry)
      one[static_cast<std::int64_t>(1 + random() % 500)] += random() % 30;
    JointCounts several;
    for (const auto& [size, count] : one)
      several[{size}] = count;
    const std::size_t limit = 1 + random() % 9;
    const Lists lists = suggest_buckets(several, {.max_combinations = limit});
    if (one.empty()) {
      EXPECT_THAT(lists, IsEmpty());
    } else {
      EXPECT_THAT(lists, ElementsAre(suggest_buckets(one, limit)));
    }
  }
}

TEST(SuggestBucketsTest, BytesLimitTheCombinationsTogether) {
  JointCounts histogram;
  for (std::int64_t rows = 1; rows <= 4; ++rows) {
    for (std::int64_t columns = 1; columns <= 4; ++columns)
      histogram[{rows, columns}] = 1;
  }
  const auto bytes = [](std::span<const std::int64_t> sizes) {
    return static_cast<double>(100 + sizes[0] * sizes[1]);
  };
  double before = std::numeric_limits<double>::infinity();
  for (const std::size_t max_bytes : {116u, 300u, 500u, 1000u, 2000u}) {
    const Lists lists = suggest_buckets(histogram, {.max_bytes = max_bytes, .bytes = bytes});
    double taken = 0;
    for (const std::int64_t rows : lists[0]) {
      for (const std::int64_t columns : lists[1])
        taken += bytes(Sizes{rows, columns});
    }
    EXPECT_LE(taken, static_cast<double>(max_bytes));
    const SizeCost cost = [](std::int64_t size) { return static_cast<double>(size); };
    const double found = total(histogram, lists, {cost, cost});
    EXPECT_LT(found, before);
    before = found;
  }
  EXPECT_THAT([&] { (void)suggest_buckets(histogram, {.max_bytes = 115, .bytes = bytes}); },
              ::testing::ThrowsMessage<InvalidArgument>(
                  HasSubstr("largest sizes alone take 116 bytes, max_bytes is 115")));
}

TEST(SuggestBucketsTest, CombinationsThatNoCallHadCountForNothing) {
  const JointCounts histogram = {{{1, 2}, 5}, {{3, 4}, 5}, {{9, 9}, 0}};
  EXPECT_THAT(suggest_buckets(histogram, {.max_combinations = 4}),
              ElementsAre(ElementsAre(1, 3), ElementsAre(2, 4)));
}

TEST(SuggestBucketsTest, ManySizesOfSeveralAxesTakeNoLongTime) {
  std::mt19937 random(7);
  JointCounts histogram;
  for (int i = 0; i < 4000; ++i) {
    const auto rows = static_cast<std::int64_t>(1 + random() % 64);
    const auto columns = static_cast<std::int64_t>(1 + random() % 4096);
    histogram[{rows, columns}] += 1 + random() % 9;
  }
  const Lists lists = suggest_buckets(histogram, {.max_combinations = 24});
  EXPECT_LE(combinations(lists), 24u);
  EXPECT_EQ(lists[0].back(), 64);
  EXPECT_GE(lists[1].size(), 2u);
}

TEST(SuggestBucketsTest, HistogramsThatAreNoneAreRefused) {
  const JointCounts uneven = {{{1, 2}, 1}, {{1}, 1}};
  EXPECT_THROW((void)suggest_buckets(uneven, BucketLimits{}), InvalidArgument);
  const JointCounts zero = {{{1, 0}, 1}};
  EXPECT_THROW((void)suggest_buckets(zero, BucketLimits{}), InvalidArgument);
  const JointCounts good = {{{1, 2}, 1}};
  EXPECT_THROW((void)suggest_buckets(good, {.max_combinations = 0}), InvalidArgument);
  EXPECT_THAT(suggest_buckets(JointCounts{{{1, 2}, 0}}, BucketLimits{}),
              ElementsAre(IsEmpty(), IsEmpty()));
}

}  // namespace
}  // namespace cgtree::testing
