// How reservations count at every level of a tree of budgets.
#include "allocator/segments/budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace cgtree {
namespace {

class BudgetTest : public testing::Test {
 protected:
  Budget process_{"process", 100};
  Budget device_{"device", 80, &process_};
  Budget other_{"other device", 80, &process_};
  Budget pool_{"pool", 50, &device_};
};

TEST_F(BudgetTest, AReservationCountsAtEveryLevelAboveIt) {
  EXPECT_EQ(pool_.try_reserve(30), nullptr);

  EXPECT_EQ(pool_.current(), 30u);
  EXPECT_EQ(device_.current(), 30u);
  EXPECT_EQ(process_.current(), 30u);
  EXPECT_EQ(other_.current(), 0u);
  pool_.release(30);
}

TEST_F(BudgetTest, ARefusalNamesTheLowestLevelWithoutRoom) {
  EXPECT_EQ(pool_.try_reserve(51), &pool_);
  EXPECT_EQ(device_.try_reserve(40), nullptr);
  EXPECT_EQ(pool_.try_reserve(41), &device_);
  EXPECT_EQ(other_.try_reserve(61), &process_);
  device_.release(40);
}

TEST_F(BudgetTest, ARefusedReservationCountsNowhere) {
  ASSERT_EQ(other_.try_reserve(80), nullptr);

  EXPECT_EQ(pool_.try_reserve(21), &process_);

  EXPECT_EQ(pool_.current(), 0u);
  EXPECT_EQ(device_.current(), 0u);
  EXPECT_EQ(process_.current(), 80u);
  other_.release(80);
}

TEST_F(BudgetTest, ThePeakIsTheMostThatWasReservedAtOnce) {
  ASSERT_EQ(pool_.try_reserve(30), nullptr);
  pool_.release(20);
  ASSERT_EQ(pool_.try_reserve(15), nullptr);

  EXPECT_EQ(pool_.peak(), 30u);
  EXPECT_EQ(process_.peak(), 30u);
  pool_.release(25);
}

TEST_F(BudgetTest, AnEmptyReservationFitsAFullBudget) {
  ASSERT_EQ(pool_.try_reserve(50), nullptr);
  EXPECT_EQ(pool_.try_reserve(0), nullptr);
  pool_.release(50);
}

TEST_F(BudgetTest, ALowerLimitKeepsWhatIsInUseAndRefusesMore) {
  ASSERT_EQ(pool_.try_reserve(40), nullptr);

  pool_.set_max_bytes(30);

  EXPECT_EQ(pool_.current(), 40u);
  EXPECT_EQ(pool_.available(), 0u);
  EXPECT_EQ(pool_.try_reserve(1), &pool_);
  pool_.release(40);
  EXPECT_EQ(pool_.available(), 30u);
}

TEST_F(BudgetTest, NoLimitIsExceededByManyThreads) {
  std::vector<std::thread> threads;
  for (Budget* budget : {&pool_, &device_, &other_, &process_}) {
    threads.emplace_back([budget] {
      for (int i = 0; i < 5000; ++i) {
        if (budget->try_reserve(7) == nullptr) budget->release(7);
        if (budget->try_reserve(60) == nullptr) budget->release(60);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  EXPECT_LE(process_.peak(), 100u);
  EXPECT_LE(pool_.peak(), 50u);
  EXPECT_EQ(process_.current(), 0u);
}

using BudgetDeathTest = BudgetTest;

TEST_F(BudgetDeathTest, ReleasingMoreThanWasReservedDies) {
  EXPECT_DEATH(pool_.release(1), "check failed");
}

TEST_F(BudgetDeathTest, EndingWithAReservationDies) {
  EXPECT_DEATH(
      {
        Budget budget("short", 10);
        (void)budget.try_reserve(1);
      },
      "check failed");
}

}  // namespace
}  // namespace cgtree
