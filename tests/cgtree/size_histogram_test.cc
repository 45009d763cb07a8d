// SizeHistogram against a std::map, and its bound.
#include "cgtree/axes/axis_rule.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace cgtree::testing {
namespace {

TEST(SizeHistogramTest, CountsAsAMapDoes) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  SizeHistogram histogram;
  std::map<std::int64_t, std::uint64_t> expected;
  for (int i = 0; i < 20000; ++i) {
    const auto size = static_cast<std::int64_t>(random() % 700) * 256;
    histogram.add(size);
    ++expected[size];
  }

  std::vector<SizeCount> counts;
  for (const auto& [size, count] : expected)
    counts.push_back({size, count});
  EXPECT_EQ(histogram.counts(), counts);
  EXPECT_EQ(histogram.uncounted(), 0u);
}

TEST(SizeHistogramTest, IsBounded) {
  SizeHistogram histogram;
  const auto most = static_cast<std::int64_t>(SizeHistogram::kMaxSizes);
  for (std::int64_t size = 0; size < most + 100; ++size)
    histogram.add(size);
  histogram.add(3);

  EXPECT_EQ(histogram.counts().size(), SizeHistogram::kMaxSizes);
  EXPECT_EQ(histogram.uncounted(), 100u);
  EXPECT_EQ(histogram.counts()[3].count, 2u);
}

}  // namespace
}  // namespace cgtree::testing
