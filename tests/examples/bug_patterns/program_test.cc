// The output and the exit status of the program, on each device.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/devices.h"
#include "tests/support/run_program.h"

namespace cgtree::bug_patterns {
namespace {

using testing::ProgramRun;

ProgramRun bug_patterns(const std::string& arguments) {
  return testing::run_program("examples/bug_patterns/bug_patterns " + arguments);
}

class ProgramTest : public ::testing::TestWithParam<testing::DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Devices, ProgramTest, ::testing::ValuesIn(testing::devices_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST_P(ProgramTest, PrintsWhatEachBugDoes) {
  const ProgramRun outcome = bug_patterns("--device=" + GetParam().name);

  EXPECT_EQ(outcome.status, 0);
  for (const char* text : {"a workspace freed after capture", "bare graph", "3 right, 2 wrong"})
    EXPECT_NE(outcome.output.find(text), std::string::npos) << outcome.output;
}

TEST(ProgramUsageTest, BadUsageEndsWithTwoAndAMessage) {
  for (const char* arguments : {"--device=tape", "--speed=9"}) {
    const ProgramRun outcome = bug_patterns(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_FALSE(outcome.output.empty()) << arguments;
  }
}

}  // namespace
}  // namespace cgtree::bug_patterns
