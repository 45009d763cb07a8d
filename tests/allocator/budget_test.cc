// Reservations in a budget.
#include "allocator/segments/budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace cgtree {
namespace {

class BudgetTest : public testing::Test {
 protected:
  Budget budget_{"pool", 50};
};

TEST_F(BudgetTest, ARefusedReservationDoesNotCount) {
  ASSERT_TRUE(budget_.try_reserve(30));

  EXPECT_FALSE(budget_.try_reserve(21));

  EXPECT_EQ(budget_.current(), 30u);
  EXPECT_TRUE(budget_.try_reserve(20));
  budget_.release(50);
}

TEST_F(BudgetTest, ThePeakIsTheMostThatWasReservedAtOnce) {
  ASSERT_TRUE(budget_.try_reserve(30));
  budget_.release(20);
  ASSERT_TRUE(budget_.try_reserve(15));

  EXPECT_EQ(budget_.peak(), 30u);
  budget_.release(25);
}

TEST_F(BudgetTest, AnEmptyReservationFitsAFullBudget) {
  ASSERT_TRUE(budget_.try_reserve(50));
  EXPECT_TRUE(budget_.try_reserve(0));
  budget_.release(50);
}

TEST_F(BudgetTest, ALowerLimitKeepsWhatIsInUseAndRefusesMore) {
  ASSERT_TRUE(budget_.try_reserve(40));

  budget_.set_max_bytes(30);

  EXPECT_EQ(budget_.current(), 40u);
  EXPECT_EQ(budget_.available(), 0u);
  EXPECT_FALSE(budget_.try_reserve(1));
  budget_.release(40);
  EXPECT_EQ(budget_.available(), 30u);
}

TEST_F(BudgetTest, TheLimitIsNotExceededByManyThreads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      for (int k = 0; k < 5000; ++k) {
        if (budget_.try_reserve(7)) budget_.release(7);
        if (budget_.try_reserve(30)) budget_.release(30);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();

  EXPECT_LE(budget_.peak(), 50u);
  EXPECT_EQ(budget_.current(), 0u);
}

using BudgetDeathTest = BudgetTest;

TEST_F(BudgetDeathTest, ReleasingMoreThanWasReservedDies) {
  EXPECT_DEATH(budget_.release(1), "check failed");
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
