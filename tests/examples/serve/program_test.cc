// The example serves without arguments, finds all tokens equal, and refuses what it cannot do.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/support/run_program.h"

namespace cgtree::serve {
namespace {

using testing::Outcome;

Outcome serve(const std::string& arguments) {
  return testing::run_program("examples/serve/serve " + arguments);
}

TEST(ProgramTest, ServesWithoutArgumentsAndPrintsATable) {
  const Outcome outcome = serve("");

  EXPECT_EQ(outcome.status, 0) << outcome.output;
  for (const char* word : {"40 requests", "eager", "cgtree", "tokens/s", "host us per step",
                           "recordings", "decode steps replayed", "decode rows padded",
                           "pool bytes", "without padding", "every token is equal"})
    EXPECT_NE(outcome.output.find(word), std::string::npos) << word << "\n" << outcome.output;
}

TEST(ProgramTest, DrawnTokensAndRanksGiveEqualTokensToo) {
  for (const char* options : {"--temperature=0.8 --top-k=20", "--device=host --ranks=2"}) {
    const Outcome outcome = serve(std::string("--requests=5 ") + options);

    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("every token is equal"), std::string::npos) << outcome.output;
  }
}

TEST(ProgramTest, WhatIsDumpedIsServedAsACheckpoint) {
  const std::string folder = ::testing::TempDir() + "/dumped_llama";

  const Outcome dumped = serve("--device=host --dump-logits=" + folder);
  EXPECT_EQ(dumped.status, 0) << dumped.output;
  const Outcome loaded = serve("--device=host --requests=5 --weights=" + folder);
  const Outcome made_up = serve("--device=host --requests=5");

  EXPECT_EQ(loaded.status, 0) << loaded.output;
  const auto parameters = [](const std::string& output) {
    return output.substr(output.find('\n'), output.find("parameters") - output.find('\n'));
  };
  EXPECT_EQ(parameters(loaded.output), parameters(made_up.output));
}

TEST(ProgramTest, AFolderWithoutWeightsIsNamed) {
  const Outcome outcome = serve("--device=host --weights=no/such/folder");

  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.output.find("no/such/folder/config.json"), std::string::npos);
}

TEST(ProgramTest, HelpSucceedsAndNamesTheOptions) {
  const Outcome outcome = serve("--help");

  EXPECT_EQ(outcome.status, 0);
  for (const char* name :
       {"--device", "--requests", "--model", "--weights", "--ranks", "--temperature"})
    EXPECT_NE(outcome.output.find(name), std::string::npos) << outcome.output;
}

TEST(ProgramTest, BadOptionsEndWithTwoAndAClearMessage) {
  for (const char* option : {"--requests=0", "--requests=many", "--device=tpu", "--nonsense",
                             "--model=2b", "--device=host --ranks=3"}) {
    const Outcome outcome = serve(option);

    EXPECT_EQ(outcome.status, 2) << option;
    EXPECT_EQ(outcome.output.rfind("serve: ", 0), 0u) << outcome.output;
  }
}

TEST(ProgramTest, AskingForAGpuWhereThereIsNoneEndsWithTwo) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);  // hides the GPUs that there are

  const Outcome outcome = serve("--device=cuda");

  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.output.find("cuda:0"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace cgtree::serve
