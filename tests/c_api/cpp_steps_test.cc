// Steps of the wrapper for C++17: a Step ends the call that it stands for, and no other.
#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

#include "cgtree/cgtree.hpp"
#include "tests/c_api/step_fixture.h"

namespace cgtree::testing {
namespace {

class CppStepsTest : public ::testing::Test {
 protected:
  cgt::Step begin() const { return steps_.begin({{"n", 1}}, {}); }

  const cgt::Context context_{{CGT_DEVICE_HOST, 0}};
  const cgt::Steps steps_{context_, "decode"};
};

TEST_F(CppStepsTest, AStepThatWasMovedFromEndsNothing) {
  for (int call = 0; call < 2; ++call) {  // the warm-up and the recording
    cgt::Step first = begin();
    ASSERT_TRUE(first.must_run());
    cgt::Step second = std::move(first);
    EXPECT_FALSE(first.must_run());
    EXPECT_THROW(first.end(), std::logic_error);
    EXPECT_THROW((void)first.address(0), std::logic_error);
    EXPECT_TRUE(second.must_run());
    second.end();
    EXPECT_FALSE(second.must_run());
  }
  EXPECT_EQ(steps_.last_outcome(), CGT_RECORDED);
}

TEST_F(CppStepsTest, AStepThatHasEndedDoesNotEndTheNext) {
  cgt::Step first = begin();
  first.end();
  {
    cgt::Step second = begin();
    ASSERT_TRUE(second.must_run());
    EXPECT_THROW(first.end(), std::logic_error);
    EXPECT_TRUE(second.must_run());
    second.end();
  }
  cgt::Step third = begin();
  EXPECT_FALSE(third.must_run());
  EXPECT_THROW(third.end(), std::logic_error);
}

}  // namespace
}  // namespace cgtree::testing
