// A budget of one user among several: nothing beyond it, and what is refused was not taken.
#include "allocator/segments/limited_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "allocator/pool/pool.h"
#include "base/error.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr StreamId kStream = 7;

class LimitedSourceTest : public testing::Test {
 protected:
  FakeSegmentSource upstream_{100 * kMiB};
  Budget device_{"device", 64 * kMiB};
  Budget budget_{"context", 10 * kMiB, &device_};
  LimitedSource source_{upstream_, budget_};
};

TEST_F(LimitedSourceTest, WhatIsTakenCountsAtEveryLevelUntilItIsFreed) {
  void* const segment = source_.allocate(6 * kMiB, kStream);
  EXPECT_EQ(budget_.current(), 6 * kMiB);
  EXPECT_EQ(device_.current(), 6 * kMiB);

  source_.free(segment, 6 * kMiB, kStream);

  EXPECT_EQ(budget_.current(), 0u);
  EXPECT_EQ(device_.current(), 0u);
}

TEST_F(LimitedSourceTest, ARefusalNamesTheLevelAndTakesNothing) {
  void* const segment = source_.allocate(6 * kMiB, kStream);
  try {
    source_.allocate(5 * kMiB, kStream);
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(std::string(error.message()), HasSubstr("'context'"));
    ASSERT_NE(error.report(), nullptr);
    EXPECT_EQ(error.report()->requested, 5 * kMiB);
  }
  EXPECT_EQ(budget_.current(), 6 * kMiB);
  EXPECT_EQ(upstream_.asked().size(), 1u);
  source_.free(segment, 6 * kMiB, kStream);
}

TEST_F(LimitedSourceTest, AnUpstreamThatRefusesLeavesTheBudgetAsItWas) {
  upstream_.fail_at(1);

  EXPECT_THROW(source_.allocate(2 * kMiB, kStream), OutOfMemory);

  EXPECT_EQ(budget_.current(), 0u);
}

TEST_F(LimitedSourceTest, PoolsOfTheBudgetGiveUpWhatTheyDoNotNeedForOneAnother) {
  Pool one(source_, {.name = "one"});
  Pool two(source_, {.name = "two"});
  one.free(one.allocate(8 * kMiB));  // leaves a segment of 20 MiB out of reach: exact size is taken
  ASSERT_EQ(budget_.current(), 8 * kMiB);

  void* const block = two.allocate(9 * kMiB);

  EXPECT_EQ(one.statistics().reserved_bytes.current, 0u);
  EXPECT_EQ(budget_.current(), 9 * kMiB);
  two.free(block);
}

TEST_F(LimitedSourceTest, PoolsThatKeepTheirSegmentsAreNotAskedInVain) {
  Pool one(source_, {.name = "one", .keeps_segments = true});
  Pool two(source_, {.name = "two"});
  one.free(one.allocate(8 * kMiB));

  try {
    (void)two.allocate(9 * kMiB);
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemory& error) {
    ASSERT_NE(error.report(), nullptr);
    ASSERT_EQ(error.report()->pools.size(), 2u);
    EXPECT_EQ(error.report()->pools[0].name, "two");
    EXPECT_EQ(error.report()->pools[1].name, "one");
    EXPECT_EQ(error.report()->pools[1].reserved, 8 * kMiB);
  }
  EXPECT_EQ(budget_.current(), 8 * kMiB);
}

TEST_F(LimitedSourceTest, GrowthAndShrinkingCount) {
  Pool pool(source_, {.name = "pool", .growth = Growth::kInPlace});
  void* const first = pool.allocate(kMiB);
  void* const second = pool.allocate(3 * kMiB);
  EXPECT_EQ(budget_.current(), pool.statistics().reserved_bytes.current);
  EXPECT_THROW((void)pool.allocate(8 * kMiB), OutOfMemory);

  pool.free(second);
  pool.trim();

  EXPECT_EQ(budget_.current(), pool.statistics().reserved_bytes.current);
  pool.free(first);
}

}  // namespace
}  // namespace cgtree
