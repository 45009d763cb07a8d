// The table of the program, on each device, and its exit status.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/buildable_devices.h"
#include "tests/support/run_program.h"

namespace cgtree {
namespace {

using testing::ProgramRun;

class ProgramTest : public ::testing::TestWithParam<testing::DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Devices, ProgramTest, ::testing::ValuesIn(testing::buildable_devices()),
                         [](const auto& info) { return info.param.name; });

// A static input is not copied.
TEST_P(ProgramTest, PrintsTheBytesThatReplaysCopy) {
  const ProgramRun outcome =
      testing::run_program("examples/extension/extension " + GetParam().name);

  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("function   key               replays    bytes\n"
                                "moving     float32 {256}           8     8192\n"
                                "moving     float32 {1024}          8    32768\n"
                                "fixed      float32 {1024}          8        0\n"),
            std::string::npos)
      << outcome.output;
}

TEST(ProgramUsageTest, AnUnknownDeviceEndsWithTwo) {
  EXPECT_EQ(testing::run_program("examples/extension/extension tape").status, 2);
}

}  // namespace
}  // namespace cgtree
