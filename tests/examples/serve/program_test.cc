// The example serves without arguments, finds all tokens equal, and refuses unsupported options.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "examples/serve/metrics_endpoint.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "tests/examples/serve/http_get.h"
#include "tests/support/run_program.h"

namespace cgtree::serve {
namespace {

using testing::ProgramRun;

ProgramRun serve(const std::string& arguments) {
  return testing::run_program("examples/serve/serve " + arguments);
}

TEST(ProgramTest, ServesWithoutArgumentsAndPrintsATable) {
  const ProgramRun outcome = serve("");

  EXPECT_EQ(outcome.status, 0) << outcome.output;
  for (const char* word :
       {"40 requests", "eager", "cgtree", "tokens/s", "host us per step", "recordings",
        "decode steps replayed", "without padding", "every token is equal"})
    EXPECT_NE(outcome.output.find(word), std::string::npos) << word << "\n" << outcome.output;
}

TEST(ProgramTest, DrawnTokensAndRanksGiveEqualTokensToo) {
  for (const char* options : {"--temperature=0.8", "--device=host --ranks=2"}) {
    const ProgramRun outcome = serve(std::string("--requests=5 ") + options);

    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_NE(outcome.output.find("every token is equal"), std::string::npos) << outcome.output;
  }
}

TEST(ProgramTest, RoundsGiveEqualTokensWithADraftAndWithDraws) {
  for (const char* options : {"--rounds=8", "--rounds=8 --temperature=0.8",
                              "--rounds=4 --draft-layers=1 --proposals=3"}) {
    const ProgramRun outcome = serve(std::string("--requests=5 ") + options);

    EXPECT_EQ(outcome.status, 0) << outcome.output;
    for (const char* word : {"rounds handed out", "every token is equal"})
      EXPECT_NE(outcome.output.find(word), std::string::npos) << word << "\n" << outcome.output;
  }
}

TEST(ProgramTest, RoundsThatCannotBeAreRefused) {
  for (const char* options :
       {"--device=host --ranks=2 --rounds=4", "--draft-layers=1 --temperature=0.8"}) {
    const ProgramRun outcome = serve(std::string("--requests=2 ") + options);

    EXPECT_EQ(outcome.status, 2) << outcome.output;
    EXPECT_NE(outcome.output.find("not there"), std::string::npos) << outcome.output;
  }
}

TEST(ProgramTest, ReplaysAreVerifiedOnAllRanks) {
  const ProgramRun outcome =
      serve("--device=host --requests=5 --ranks=2 --temperature=0.8 --verify=2");

  EXPECT_EQ(outcome.status, 0) << outcome.output;
  for (const char* word : {"every token is equal", " replays verified, 0 differed",
                           "input 1 'kv_cache': bit for bit, largest difference 0"})
    EXPECT_NE(outcome.output.find(word), std::string::npos) << word << "\n" << outcome.output;
}

TEST(ProgramTest, MetricsAreScrapedWhileItServes) {
  const MetricsEndpoint taken(0, [] { return std::string(); });
  const int port = taken.port() == 65'535 ? taken.port() - 1 : taken.port() + 1;
  const std::string options = "--device=host --requests=150 --ranks=2 --metrics-port=";
  auto served =
      std::async(std::launch::async, [&] { return serve(options + std::to_string(port)); });
  const std::string sought = "cgtree_calls_total{context=\"rank 1\",function=\"decode\",outcome=\"";
  bool found = false;
  while (served.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready)
    found = found || testing::get_metrics(port).find(sought) != std::string::npos;
  EXPECT_TRUE(found);
  EXPECT_EQ(served.get().status, 0);
}

TEST(ProgramTest, APortInUseIsSaidAndTheServerGoesOn) {
  const MetricsEndpoint taken(0, [] { return std::string(); });
  const ProgramRun outcome = serve("--requests=5 --metrics-port=" + std::to_string(taken.port()));
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("metrics cannot be served on port"), std::string::npos);
  EXPECT_NE(outcome.output.find("every token is equal"), std::string::npos) << outcome.output;
}

TEST(ProgramTest, EventsOfAllRanksAreInOneFile) {
  const std::string path = ::testing::TempDir() + "/serve_events.jsonl";
  std::remove(path.c_str());
  const ProgramRun outcome = serve("--device=host --requests=5 --ranks=2 --event-file=" + path);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  std::ifstream file(path);
  std::map<std::string, int> replays;  // by context
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json event = nlohmann::json::parse(line);
    replays[event.at("context")] += event.at("event") == "replay";
  }
  std::remove(path.c_str());
  EXPECT_EQ(replays.size(), 2u);
  EXPECT_GT(replays["rank 0"], 0);
  EXPECT_EQ(replays["rank 0"], replays["rank 1"]);
}

// On the host device processes have no collectives; on GPUs each process needs a GPU.
TEST(ProgramTest, ProcessesOfMpirunAreRanks) {
  if (std::system("command -v mpirun > /dev/null") != 0) GTEST_SKIP() << "there is no mpirun";
  const auto mpirun = [](int count, const std::string& device) {
    return testing::run_program(
        "mpirun --allow-run-as-root --oversubscribe -n " + std::to_string(count) +
        " examples/serve/serve --requests=5 --ranks=mpi --device=" + device);
  };
  const ProgramRun alone = mpirun(1, "host");
  EXPECT_EQ(alone.status, 0) << alone.output;
  EXPECT_NE(alone.output.find("every token is equal"), std::string::npos) << alone.output;
  const ProgramRun refused = mpirun(2, "host");
  EXPECT_EQ(refused.status, 2) << refused.output;
  EXPECT_NE(refused.output.find("no collectives between processes"), std::string::npos);
  if (Device::best().type == DeviceType::kHost || !device_api(Device::cuda()).has_device(1)) return;
  const ProgramRun two = mpirun(2, "cuda");
  EXPECT_EQ(two.status, 0) << two.output;
  EXPECT_NE(two.output.find("on 2 x cuda:0"), std::string::npos) << two.output;
  EXPECT_EQ(two.output.find("requests,"), two.output.rfind("requests,")) << "one rank prints";
}

TEST(ProgramTest, AFolderWithoutWeightsIsNamed) {
  const ProgramRun outcome = serve("--device=host --weights=no/such/folder");

  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.output.find("no/such/folder/config.json"), std::string::npos);
}

TEST(ProgramTest, HelpSucceedsAndNamesTheOptions) {
  const ProgramRun outcome = serve("--help");

  EXPECT_EQ(outcome.status, 0);
  for (const char* name :
       {"--device", "--requests", "--model", "--weights", "--ranks", "--temperature"})
    EXPECT_NE(outcome.output.find(name), std::string::npos) << outcome.output;
}

TEST(ProgramTest, BadOptionsEndWithTwoAndAClearMessage) {
  for (const char* option : {"--requests=0", "--requests=many", "--device=tpu", "--nonsense",
                             "--model=2b", "--device=host --ranks=3"}) {
    const ProgramRun outcome = serve(option);

    EXPECT_EQ(outcome.status, 2) << option;
    EXPECT_EQ(outcome.output.rfind("serve: ", 0), 0u) << outcome.output;
  }
}

TEST(ProgramTest, AskingForAGpuWhereThereIsNoneEndsWithTwo) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);  // hides all GPUs

  const ProgramRun outcome = serve("--device=cuda");

  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.output.find("cuda:0"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace cgtree::serve
