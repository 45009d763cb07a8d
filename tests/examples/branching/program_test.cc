// The output and the exit status of the program, on each device.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/devices.h"
#include "tests/support/run_program.h"

namespace cgtree::branching {
namespace {

namespace fs = std::filesystem;

using testing::ProgramRun;

ProgramRun branching(const std::string& arguments) {
  return testing::run_program("examples/branching/branching " + arguments);
}

class ProgramTest : public ::testing::TestWithParam<testing::DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }
  std::string device() const { return "--device=" + GetParam().name + " "; }
};
INSTANTIATE_TEST_SUITE_P(Devices, ProgramTest, ::testing::ValuesIn(testing::devices_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST_P(ProgramTest, PrintsTheTreeItGrew) {
  const ProgramRun outcome = branching(device());

  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("one (#1)              18 replays\n"
                                "  two (#2)            13 replays\n"
                                "    four (#3)         18 replays\n"
                                "  three (#4)           3 replays  -> four (#3)\n"),
            std::string::npos)
      << outcome.output;
}

TEST_P(ProgramTest, WritesTheSnapshotWhereTheCallerIs) {
  const fs::path folder = fs::path(::testing::TempDir()) / GetParam().name;
  fs::create_directories(folder);
  setenv("BUILD_WORKING_DIRECTORY", folder.c_str(), 1);

  const ProgramRun outcome = branching(device() + "--snapshot=tree.json");

  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  std::ifstream file(folder / "tree.json");
  EXPECT_EQ(nlohmann::json::parse(file)["nodes"].size(), 4u);
}

TEST(ProgramUsageTest, HelpSucceedsAndNamesTheFlags) {
  const ProgramRun outcome = branching("--help");

  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.output.find("--snapshot"), std::string::npos) << outcome.output;
}

TEST(ProgramUsageTest, BadUsageEndsWithTwoAndAMessage) {
  for (const char* arguments :
       {"--device=tape", "--speed=9", "--device=host --snapshot=no/t.json"}) {
    const ProgramRun outcome = branching(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_FALSE(outcome.output.empty()) << arguments;
  }
}

}  // namespace
}  // namespace cgtree::branching
