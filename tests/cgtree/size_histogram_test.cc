// Histogram against a std::map, and its bound.
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
  Histogram<std::int64_t> histogram;
  std::map<std::int64_t, std::uint64_t> expected;
  for (int i = 0; i < 20000; ++i) {
    const auto size = static_cast<std::int64_t>(random() % 700) * 256;
    histogram.add(size);
    ++expected[size];
  }

  EXPECT_EQ(histogram.counts(), expected);
  EXPECT_EQ(histogram.uncounted(), 0u);
}

TEST(SizeHistogramTest, IsBounded) {
  Histogram<std::int64_t> histogram;
  const auto most = static_cast<std::int64_t>(histogram.kMaxSizes);
  for (std::int64_t size = 0; size < most + 100; ++size)
    histogram.add(size);
  histogram.add(3);

  EXPECT_EQ(histogram.counts().size(), histogram.kMaxSizes);
  EXPECT_EQ(histogram.uncounted(), 100u);
  EXPECT_EQ(histogram.counts()[3], 2u);
}

}  // namespace
}  // namespace cgtree::testing
