// The exit status and the messages of the program.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "interop/device/device.h"
#include "tests/support/run_program.h"

namespace cgtree::serve {
namespace {

namespace fs = std::filesystem;

using testing::ProgramRun;

ProgramRun serve(const std::string& arguments) {
  return testing::run_program("benchmarks/serve/serve " + arguments);
}

std::string temporary(const std::string& name) {
  return (fs::path(::testing::TempDir()) / name).string();
}

const std::string kTiny =
    "--device=host --requests=3 --layers=1 --max-batch=2 --context=64 --prompt=2 ";

TEST(ProgramTest, ServesWithoutArgumentsAndPrintsATable) {
  const ProgramRun outcome = serve("");

  EXPECT_EQ(outcome.status, 0) << outcome.output;
  for (const char* word : {"tokens/s", "step latency p50", "step latency p99", "host us per step",
                           "recordings", "replays", "skips: disabled", "pool bytes", "graph bytes",
                           "decode steps replayed", "suggested", "every token equal in both modes"})
    EXPECT_NE(outcome.output.find(word), std::string::npos) << word << "\n" << outcome.output;
}

TEST(ProgramTest, IsQuietInAPipeButForTheTable) {
  const ProgramRun outcome = serve(kTiny);

  EXPECT_EQ(outcome.output.find('\r'), std::string::npos);
  EXPECT_EQ(outcome.output.find('\x1b'), std::string::npos);
}

TEST(ProgramTest, ASoakEndsInTimeAndSaysWhatItWatched) {
  const ProgramRun outcome = serve(kTiny + "--soak=1 --policy=all --budget=1");

  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(outcome.output.find('\r'), std::string::npos);
  EXPECT_NE(outcome.output.find("every token equal, memory flat"), std::string::npos)
      << outcome.output;
}

TEST(ProgramTest, HelpSucceeds) {
  EXPECT_EQ(serve("--help").status, 0);
}

TEST(ProgramTest, WritesJsonAndNothingBeside) {
  const fs::path folder = temporary("json");
  fs::create_directories(folder);

  EXPECT_EQ(serve(kTiny + "--json=" + (folder / "r.json").string()).status, 0);

  EXPECT_TRUE(fs::exists(folder / "r.json"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST(ProgramTest, VerifiedReplaysAreInTheJsonWithWhatTheyCover) {
  const fs::path folder = temporary("verify");
  fs::create_directories(folder);

  EXPECT_EQ(serve(kTiny + "--verify=2 --json=" + (folder / "r.json").string()).status, 0);

  std::ifstream file(folder / "r.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const char* word :
       {"\"verify_every\": 2", "\"differed\": 0", "\"verified_share\": 0.", "\"what\": \"output 0"})
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
}

struct Refused {
  std::string arguments;
  std::string message;
};

class RefusedTest : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedTest, EndsWithTwoAndAClearMessage) {
  const ProgramRun outcome = serve(GetParam().arguments);

  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.output.rfind("serve: ", 0), 0u) << outcome.output;
  EXPECT_NE(outcome.output.find(GetParam().message), std::string::npos) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(
    CommandLines, RefusedTest,
    ::testing::Values(Refused{"--layers=-3", "--layers"},
                      Refused{"--max-batch=99999", "--max-batch"},
                      Refused{"--trace=no/such.csv", "cannot read the trace 'no/such.csv'"},
                      Refused{kTiny + "--json=no/such/r.json", "cannot write 'no/such/r.json'"},
                      Refused{"--device=host --model=8b --max-batch=4096 --context=1000000",
                              "the model needs"}));

TEST(ProgramTest, AMalformedTraceEndsWithTwoAndNamesThePlace) {
  const std::string path = temporary("bad.csv");
  std::ofstream(path) << "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,x,4\n";

  const ProgramRun outcome = serve("--trace=" + path);

  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.output.find(path + ":2:21: "), std::string::npos) << outcome.output;
}

TEST(ProgramTest, ABadTraceLeavesNoJsonBehind) {
  const std::string trace = temporary("empty.csv");
  const std::string json = temporary("never.json");
  std::ofstream(trace).flush();

  EXPECT_EQ(serve("--trace=" + trace + " --json=" + json).status, 2);

  EXPECT_FALSE(fs::exists(json));
}

TEST(ProgramTest, AskingForAGpuWhereThereIsNoneEndsWithTwo) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);  // hides all GPUs

  const ProgramRun outcome = serve("--device=cuda");

  unsetenv("CUDA_VISIBLE_DEVICES");

  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.output.find("cuda:0"), std::string::npos) << outcome.output;
}

TEST(ProgramTest, RelativePathsAreTheCallers) {
  const fs::path folder = temporary("caller");
  fs::create_directories(folder);
  setenv("BUILD_WORKING_DIRECTORY", folder.c_str(), 1);

  const ProgramRun outcome = serve(kTiny + "--json=r.json");

  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(fs::exists(folder / "r.json"));
}

}  // namespace
}  // namespace cgtree::serve
