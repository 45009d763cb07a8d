// A part of the budget for some pools: it is never exceeded, and a refused request is not counted.
#include "allocator/segments/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>

#include "base/error.h"
#include "tests/allocator/account_pool.h"
#include "tests/allocator/fake_segment_source.h"

namespace cgtree {
namespace {

using testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr StreamId kStream = 7;

class SegmentAccountTest : public testing::Test {
 protected:
  Pool& make_pool(PoolOptions options, bool keeps_segments = false) {
    return make_pool(*account_, std::move(options), keeps_segments);
  }
  Pool& make_pool(SegmentAccount& account, PoolOptions options = {}, bool keeps_segments = false) {
    options.stream = kStream;
    return pools_.emplace_back(cache_, account, options, keeps_segments).pool;
  }
  Budget& budget() { return account_->budget(); }

  FakeSegmentSource upstream_{100 * kMiB};
  Budget device_{"device", 64 * kMiB};
  SegmentCache cache_{upstream_, &device_};
  std::shared_ptr<SegmentAccount> account_ = std::make_shared<SegmentAccount>(
      SegmentAccount::Options{.name = "context", .max_bytes = 10 * kMiB});
  std::deque<AccountPool> pools_;
};

TEST_F(SegmentAccountTest, SegmentsInUseCountInTheAccountAndCachedOnesOnlyInTheReserve) {
  void* const segment = cache_.allocate_for(*account_, 6 * kMiB, kStream);
  EXPECT_EQ(budget().current(), 6 * kMiB);
  EXPECT_EQ(device_.current(), 6 * kMiB);

  cache_.free_for(*account_, segment, 6 * kMiB, kStream);

  EXPECT_EQ(budget().current(), 0u);
  EXPECT_EQ(device_.current(), 6 * kMiB);
  cache_.trim();
  EXPECT_EQ(device_.current(), 0u);
}

TEST_F(SegmentAccountTest, ARefusalNamesTheLevelAndTakesNothing) {
  void* const segment = cache_.allocate_for(*account_, 6 * kMiB, kStream);
  try {
    cache_.allocate_for(*account_, 5 * kMiB, kStream);
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(std::string(error.message()), HasSubstr("'context'"));
    ASSERT_NE(error.report(), nullptr);
    EXPECT_EQ(error.report()->requested, 5 * kMiB);
  }
  EXPECT_EQ(budget().current(), 6 * kMiB);
  EXPECT_EQ(upstream_.asked().size(), 1u);
  cache_.free_for(*account_, segment, 6 * kMiB, kStream);
}

TEST_F(SegmentAccountTest, AnUpstreamThatRefusesLeavesTheBudgetsAsTheyWere) {
  upstream_.fail_at(1);

  EXPECT_THROW(cache_.allocate_for(*account_, 2 * kMiB, kStream), OutOfMemory);

  EXPECT_EQ(budget().current(), 0u);
  EXPECT_EQ(device_.current(), 0u);
}

TEST_F(SegmentAccountTest, PoolsOfTheAccountGiveUpWhatTheyDoNotNeedForOneAnother) {
  Pool& one = make_pool({.name = "one"});
  Pool& two = make_pool({.name = "two"});
  one.free(one.allocate(8 * kMiB));  // too little is left for 20 MiB: exact size
  ASSERT_EQ(budget().current(), 8 * kMiB);

  void* const block = two.allocate(9 * kMiB);

  EXPECT_EQ(one.statistics().reserved_bytes.current, 0u);
  EXPECT_EQ(budget().current(), 9 * kMiB);
  two.free(block);
}

TEST_F(SegmentAccountTest, PoolsThatKeepTheirSegmentsGiveNoneBack) {
  Pool& one = make_pool({.name = "one"}, /*keeps_segments=*/true);
  Pool& two = make_pool({.name = "two"});
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
  EXPECT_EQ(budget().current(), 8 * kMiB);
}

TEST_F(SegmentAccountTest, PoolsOfOtherAccountsAreNotAskedForTheAccountsOwnLimit) {
  Pool& other = make_pool(cache_.own_account());
  other.free(other.allocate(30 * kMiB));
  Pool& pool = make_pool({.name = "one"});

  EXPECT_THROW((void)pool.allocate(11 * kMiB), OutOfMemory);

  EXPECT_EQ(other.statistics().reserved_bytes.current, 30 * kMiB);
}

TEST_F(SegmentAccountTest, TheReclaimCallbackOfTheAccountMakesRoomForItsPools) {
  Pool& one = make_pool({.name = "one"}, /*keeps_segments=*/true);
  Pool& two = make_pool({.name = "two"});
  one.free(one.allocate(8 * kMiB));
  std::size_t needed = 0;
  const auto id = cache_.add_reclaim(
      [&](std::size_t bytes) {
        needed = bytes;
        return one.trim();
      },
      account_.get());

  void* const block = two.allocate(9 * kMiB);

  EXPECT_GE(needed, 9 * kMiB);  // a larger segment was tried first
  EXPECT_EQ(budget().current(), 9 * kMiB);
  two.free(block);
  cache_.remove_reclaim(id);
}

TEST_F(SegmentAccountTest, AnAccountWithAReserveOfItsOwnTakesNothingFromTheDevice) {
  const auto own = std::make_shared<FakeSegmentSource>(4 * kMiB);
  const auto reserve = std::make_shared<Budget>("pinned", 4 * kMiB);
  SegmentAccount account({.source = own, .reserve = reserve});
  Pool& other = make_pool(cache_.own_account());
  other.free(other.allocate(30 * kMiB));
  void* const segment = cache_.allocate_for(account, 2 * kMiB, kStream);
  EXPECT_EQ(reserve->current(), 2 * kMiB);
  EXPECT_EQ(device_.current(), 30 * kMiB);

  EXPECT_THROW(cache_.allocate_for(account, 3 * kMiB, kStream), OutOfMemory);

  EXPECT_EQ(other.statistics().reserved_bytes.current, 30 * kMiB);
  cache_.free_for(account, segment, 2 * kMiB, kStream);
  cache_.trim();
  EXPECT_EQ(reserve->current(), 0u);
}

TEST_F(SegmentAccountTest, GrowthAndShrinkingCount) {
  upstream_.set_spacing(64 * kMiB);
  Pool& pool = make_pool({.name = "pool", .growth = Growth::kInPlace});
  void* const first = pool.allocate(kMiB);
  void* const second = pool.allocate(3 * kMiB);
  EXPECT_EQ(budget().current(), pool.statistics().reserved_bytes.current);
  EXPECT_THROW((void)pool.allocate(8 * kMiB), OutOfMemory);

  pool.free(second);
  pool.trim();

  EXPECT_EQ(budget().current(), pool.statistics().reserved_bytes.current);
  pool.free(first);
}

}  // namespace
}  // namespace cgtree
