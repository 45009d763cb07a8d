// Who may enter a context while who is inside.
#include "cgtree/tree/lane_gate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

namespace cgtree {
namespace {

TEST(LaneGateTest, ASecondCallerIsTurnedAwayUntilTheFirstHasLeft) {
  LaneGate gate;
  ASSERT_TRUE(gate.enter());
  EXPECT_FALSE(gate.enter());
  EXPECT_FALSE(gate.enter_for_upkeep());
  gate.leave();

  EXPECT_TRUE(gate.enter());
}

TEST(LaneGateTest, ACallerWaitsForUpkeepOnAnotherThread) {
  LaneGate gate;
  ASSERT_TRUE(gate.enter_for_upkeep());
  std::future<bool> entered = std::async(std::launch::async, [&] { return gate.enter(); });
  EXPECT_EQ(entered.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_FALSE(gate.enter_for_upkeep());
  gate.leave_upkeep();

  EXPECT_TRUE(entered.get());
}

// It would wait for itself.
TEST(LaneGateTest, WhatUpkeepCallsBackIsTurnedAway) {
  LaneGate gate;
  ASSERT_TRUE(gate.enter_for_upkeep());
  EXPECT_FALSE(gate.enter());
  gate.leave_upkeep();
}

}  // namespace
}  // namespace cgtree
