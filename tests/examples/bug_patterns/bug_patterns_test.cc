// Each bug goes wrong in silence without help, is found before the first wrong result with it, and
// is gone once it is repaired.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "examples/bug_patterns/patterns.h"
#include "examples/bug_patterns/trial.h"
#include "tests/support/devices.h"

namespace cgtree::bug_patterns {
namespace {

using testing::DeviceUnderTest;

constexpr int kBefore = 3;  // steps before the engine goes on
constexpr int kAfter = 2;

class BugPatternsTest : public ::testing::TestWithParam<std::tuple<DeviceUnderTest, PatternInfo>> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(std::get<0>(GetParam())); }
  Device device() const { return std::get<0>(GetParam()).device; }
  const PatternInfo& pattern() const { return std::get<1>(GetParam()); }
};

std::string test_name(const ::testing::TestParamInfo<BugPatternsTest::ParamType>& info) {
  std::string name = std::get<0>(info.param).name + "_";
  for (const char letter : std::get<1>(info.param).name)
    name += letter == ' ' ? '_' : letter;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Devices, BugPatternsTest,
                         ::testing::Combine(::testing::ValuesIn(testing::devices_under_test()),
                                            ::testing::ValuesIn(patterns())),
                         test_name);

TEST_P(BugPatternsTest, ABareGraphGoesWrongInSilence) {
  const Trial trial = try_bare_graph(pattern(), device());

  EXPECT_EQ(trial.refusal, "");
  EXPECT_EQ(trial.right, kBefore);
  EXPECT_EQ(trial.wrong, kAfter);
}

TEST_P(BugPatternsTest, ARecordingOfItGoesWrongLikewise) {
  const Trial trial = try_context(pattern(), device(), {});

  EXPECT_EQ(trial.refusal, "");
  EXPECT_EQ(trial.right, kBefore);
  EXPECT_EQ(trial.wrong, kAfter);
}

TEST_P(BugPatternsTest, TheRepairedStepIsRightThroughout) {
  const Trial trial = try_repaired(pattern(), device(), {});

  EXPECT_EQ(trial.refusal, "");
  EXPECT_EQ(trial.right, kBefore + kAfter);
  EXPECT_EQ(trial.wrong, 0);
}

}  // namespace
}  // namespace cgtree::bug_patterns
