// The example's output and exit status, from outside, on each device.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

#include "tests/support/buildable_devices.h"

namespace cgtree::jit_kernel {
namespace {

struct Outcome {
  int status = -1;
  std::string output;  // standard output and standard error
};

// Bazel and the bundle both start a test in the root of its files.
Outcome jit_kernel(const std::string& arguments) {
  std::FILE* const pipe =
      popen(("examples/jit_kernel/jit_kernel " + arguments + " 2>&1").c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> chunk;
  for (std::size_t n; (n = fread(chunk.data(), 1, chunk.size(), pipe)) > 0;)
    outcome.output.append(chunk.data(), n);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

class ProgramTest : public ::testing::TestWithParam<testing::DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }
  std::string device() const { return "--device=" + GetParam().name + " "; }
};
INSTANTIATE_TEST_SUITE_P(Devices, ProgramTest, ::testing::ValuesIn(testing::buildable_devices()),
                         [](const auto& info) { return info.param.name; });

TEST_P(ProgramTest, BuildsTheFormulaAndReplaysIt) {
  const Outcome outcome = jit_kernel(device());

  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("f(0, 1, 2, 3) = 1, 2, 5, 10\n2 replays\n"), std::string::npos)
      << outcome.output;
}

TEST_P(ProgramTest, AnotherFormulaNeedsACompiler) {
  const Outcome outcome = jit_kernel(device() + "--formula='2 * x'");

  const bool is_host = GetParam().name == "host";
  EXPECT_EQ(outcome.status, is_host ? 2 : 0) << outcome.output;
  EXPECT_NE(outcome.output.find(is_host ? "the host device knows one formula: x * x + 1"
                                        : "f(0, 1, 2, 3) = 0, 2, 4, 6\n"),
            std::string::npos)
      << outcome.output;
}

TEST_P(ProgramTest, AFormulaThatDoesNotCompileEndsWithTwoAndTheLog) {
  const Outcome outcome = jit_kernel(device() + "--formula=nothing");

  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.output.find(GetParam().name == "host" ? "one formula" : "is undefined"),
            std::string::npos)
      << outcome.output;
}

TEST(ProgramUsageTest, HelpSucceedsAndNamesTheFlags) {
  const Outcome outcome = jit_kernel("--help");

  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("--formula"), std::string::npos) << outcome.output;
}

TEST(ProgramUsageTest, BadUsageEndsWithTwoAndAMessage) {
  for (const char* arguments : {"--device=tape", "--speed=9"}) {
    const Outcome outcome = jit_kernel(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_FALSE(outcome.output.empty()) << arguments;
  }
}

}  // namespace
}  // namespace cgtree::jit_kernel
