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
  for (const char* word :
       {"40 requests", "eager", "cgtree", "tokens/s", "host us per step", "recordings",
        "decode steps replayed", "pool bytes", "every token is equal"})
    EXPECT_NE(outcome.output.find(word), std::string::npos) << word << "\n" << outcome.output;
}

TEST(ProgramTest, HelpSucceedsAndNamesTheOptions) {
  const Outcome outcome = serve("--help");

  EXPECT_EQ(outcome.status, 0);
  for (const char* name : {"--device", "--requests"})
    EXPECT_NE(outcome.output.find(name), std::string::npos) << outcome.output;
}

TEST(ProgramTest, BadOptionsEndWithTwoAndAClearMessage) {
  for (const char* option : {"--requests=0", "--requests=many", "--device=tpu", "--nonsense"}) {
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
