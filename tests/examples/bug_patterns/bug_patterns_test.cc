// Each bug gives wrong results silently without help, is found before the first wrong result with
// it, and is gone after its repair.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "examples/bug_patterns/patterns.h"
#include "examples/bug_patterns/trial.h"
#include "extensions/audit/audit_options.h"
#include "extensions/verify/verify.h"
#include "tests/support/devices.h"

namespace cgtree::bug_patterns {
namespace {

using ::testing::AllOf;
using testing::DeviceUnderTest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kBefore = 3;  // steps before the bug takes effect
constexpr int kAfter = 2;
const ContextOptions kRefused = {
    .extensions = {audit({.on_foreign_pointer = OnForeignPointer::kThrow})}};
const ContextOptions kChecked = {
    .extensions = {audit({.on_foreign_pointer = OnForeignPointer::kThrow}), verify({.every = 1})}};

class BugPatternsTest : public ::testing::TestWithParam<std::tuple<DeviceUnderTest, PatternInfo>> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(std::get<0>(GetParam())); }
  Device device() const { return std::get<0>(GetParam()).device; }
  const PatternInfo& pattern() const { return std::get<1>(GetParam()); }
  bool has_address() const { return !pattern().kernel.empty(); }
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

TEST_P(BugPatternsTest, TheAuditNamesWhatARecordingWillTripOver) {
  const Trial trial = try_context(pattern(), device(), {});

  EXPECT_EQ(trial.refusal, "");
  EXPECT_EQ(trial.right, kBefore);
  EXPECT_EQ(trial.wrong, kAfter);
  if (has_address()) {
    EXPECT_THAT(trial.foreign,
                ElementsAre(AllOf(HasSubstr(std::string(pattern().kernel)),
                                  HasSubstr(std::string(pattern().place)), HasSubstr("declare"))));
  } else {
    EXPECT_THAT(trial.foreign, IsEmpty());
  }
}

TEST_P(BugPatternsTest, NothingIsRecordedWhereForeignPointersAreRefused) {
  const Trial trial = try_context(pattern(), device(), kRefused);

  if (has_address()) {
    EXPECT_EQ(trial.right, 1);  // the warm-up
    EXPECT_EQ(trial.wrong, 0);
    EXPECT_THAT(trial.refusal,
                AllOf(HasSubstr("step"), HasSubstr(std::string(pattern().kernel)),
                      HasSubstr(std::string(pattern().place)), HasSubstr("declare")));
  } else {
    EXPECT_EQ(trial.refusal, "");
    EXPECT_EQ(trial.wrong, kAfter);
  }
}

TEST_P(BugPatternsTest, VerificationFindsAReplayThatDiffersFromAnEagerRun) {
  const Trial trial = try_context(pattern(), device(), {.extensions = {verify({.every = 1})}});

  EXPECT_EQ(trial.right, kBefore);
  if (pattern().differs_from_eager) {
    EXPECT_EQ(trial.wrong, 0);
    EXPECT_THAT(trial.refusal, AllOf(HasSubstr("step"), HasSubstr("output 0")));
    EXPECT_THAT(trial.refusal, HasSubstr(std::string(pattern().place)));  // the suspect
  } else {
    EXPECT_EQ(trial.refusal, "");
    EXPECT_EQ(trial.wrong, kAfter);
  }
}

TEST_P(BugPatternsTest, TheAuditOrVerificationFindsEach) {
  EXPECT_TRUE(has_address() || pattern().differs_from_eager);
}

TEST_P(BugPatternsTest, TheRepairedStepIsRightThroughoutAndHasNoForeignPointer) {
  const Trial trial = try_repaired(pattern(), device(), kChecked);

  EXPECT_EQ(trial.refusal, "");
  EXPECT_EQ(trial.right, kBefore + kAfter);
  EXPECT_EQ(trial.wrong, 0);
  EXPECT_THAT(trial.foreign, IsEmpty());
}

}  // namespace
}  // namespace cgtree::bug_patterns
