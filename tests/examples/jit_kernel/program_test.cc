// The output and the exit status of the program, on each device.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/buildable_devices.h"
#include "tests/support/run_program.h"

namespace cgtree::jit_kernel {
namespace {

using testing::ProgramRun;

ProgramRun jit_kernel(const std::string& arguments) {
  return testing::run_program("examples/jit_kernel/jit_kernel " + arguments);
}

class ProgramTest : public ::testing::TestWithParam<testing::DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }
  std::string device() const { return "--device=" + GetParam().name + " "; }
};
INSTANTIATE_TEST_SUITE_P(Devices, ProgramTest, ::testing::ValuesIn(testing::buildable_devices()),
                         [](const auto& info) { return info.param.name; });

TEST_P(ProgramTest, BuildsTheFormulaAndReplaysIt) {
  const ProgramRun outcome = jit_kernel(device());

  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("f(0, 1, 2, 3) = 1, 2, 5, 10\n2 replays\n"), std::string::npos)
      << outcome.output;
}

TEST_P(ProgramTest, AnotherFormulaNeedsACompiler) {
  const ProgramRun outcome = jit_kernel(device() + "--formula='2 * x'");

  const bool is_host = GetParam().name == "host";
  EXPECT_EQ(outcome.status, is_host ? 2 : 0) << outcome.output;
  EXPECT_NE(outcome.output.find(is_host ? "the host device knows one formula: x * x + 1"
                                        : "f(0, 1, 2, 3) = 0, 2, 4, 6\n"),
            std::string::npos)
      << outcome.output;
}

TEST_P(ProgramTest, AFormulaThatDoesNotCompileEndsWithTwoAndTheLog) {
  const ProgramRun outcome = jit_kernel(device() + "--formula=nothing");

  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.output.find(GetParam().name == "host" ? "one formula" : "is undefined"),
            std::string::npos)
      << outcome.output;
}

TEST(ProgramUsageTest, HelpSucceedsAndNamesTheFlags) {
  const ProgramRun outcome = jit_kernel("--help");

  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("--formula"), std::string::npos) << outcome.output;
}

TEST(ProgramUsageTest, BadUsageEndsWithTwoAndAMessage) {
  for (const char* arguments : {"--device=tape", "--speed=9"}) {
    const ProgramRun outcome = jit_kernel(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_FALSE(outcome.output.empty()) << arguments;
  }
}

}  // namespace
}  // namespace cgtree::jit_kernel
