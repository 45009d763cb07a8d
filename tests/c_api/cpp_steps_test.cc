// Steps of the wrapper for C++17: a Step ends its own call, and no other.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/c/cgtree.hpp"
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

TEST_F(CppStepsTest, RecordingsAreInspectedAndComparedWithNewCaptures) {
  for (int call = 0; call < 2; ++call)
    begin().end();
  EXPECT_NE(steps_.inspect({{"n", 1}}, {}).find("have run alone"), std::string::npos);
  int runs = 0;
  const auto work = [&runs](void* const*) { ++runs; };
  EXPECT_NE(steps_.compare_captures({{"n", 1}}, {}, work).find("the same 0 nodes"),
            std::string::npos);
  EXPECT_EQ(runs, 1);
  EXPECT_NE(steps_.compare_captures({{"n", 2}}, {}, work).find("no recording"), std::string::npos);

  const auto make = [](cgt::Span<cgt::TensorRef> = {}) {
    return cgt::empty({2}, CGT_FLOAT32, {CGT_DEVICE_HOST, 0});
  };
  const cgt::Function<1> function(context_, "f", make);
  const cgt::Tensor x = make();
  EXPECT_NE(function.inspect({x}).find("no recording"), std::string::npos);
  EXPECT_NE(function.compare_captures({x}).find("no recording"), std::string::npos);
  EXPECT_NE(function.compare_runs({x}).find("no recording"), std::string::npos);
}

TEST_F(CppStepsTest, AWatchSaysHowFarReplaysHaveCome) {
  auto options = cgt::sized<cgt_progress_options>();
  options.flags = CGT_PROGRESS_NO_TIME_LIMIT;
  cgt::ProgressWatch watch(&options);
  context_.watch_progress(watch);
  for (int call = 0; call < 4; ++call) {
    cgt::Step step = begin();
    if (step.must_run()) step.end();
  }
  context_.synchronize();
  EXPECT_NE(watch.report().find("all replays have ended, the last was replay 2 of 'decode'"),
            std::string::npos)
      << watch.report();
  EXPECT_NE(watch.report_json().find("cgtree.progress"), std::string::npos);
  context_.watch_no_progress();
  EXPECT_EQ(watch.report(), "");

  context_.watch_progress(cgt::ProgressWatch());  // owned by the context
  options.flags = 1u << 9;
  EXPECT_THROW(cgt::ProgressWatch(&options).report(), cgt::Error);
}

}  // namespace
}  // namespace cgtree::testing
