// Random programs on the host device that runs work in a random order and looks at all memory: the
// tree relies on no order but what CUDA promises.
//
// CGTREE_PROGRAMS says how many, CGTREE_SEED the first's seed, of the program and of the order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

#include "base/log.h"
#include "interop/device/host/strict_memory.h"
#include "tests/support/host_slot.h"
#include "tests/support/mutant_device.h"
#include "tests/system/program_runner.h"

namespace cgtree::testing {
namespace {

unsigned long from_environment(const char* name, unsigned long otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? std::stoul(value) : otherwise;
}

class RandomOrderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([](LogLevel, const std::string&) {});  // faults are logged, by the thousand
  }
  void TearDown() override {
    HostSlot::instance().put(host_device_api());
    set_log_sink(nullptr);
  }

  // What went wrong, or was found; `mutant` is a fault of the device, "None" for none.
  std::string run(const StepProgram& program, std::uint64_t seed, const char* mutant) {
    const StrictHostDevice host =
        make_strict_host_device({.executor = HostExecutor::kRandom, .seed = seed});
    const auto device = make_mutant(mutant, *host.device);
    HostSlot::instance().put(*device);
    std::string text = ProgramRunner(HostSlot::instance().device(), true).run(program, totals_);
    static_cast<void>(device->synchronize_device(0));
    for (const std::string& finding : host.memory->take_findings())
      text += "\n" + finding;
    return text;
  }

  ProgramTotals totals_;
};

constexpr unsigned kParts = 4;
class RandomOrderPartTest : public RandomOrderTest,
                            public ::testing::WithParamInterface<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Parts, RandomOrderPartTest, ::testing::Range(0U, kParts));

TEST_P(RandomOrderPartTest, ProgramsGiveWhatEagerExecutionGives) {
  const unsigned long programs = from_environment("CGTREE_PROGRAMS", 10'000);
  const unsigned long first = from_environment("CGTREE_SEED", std::random_device()());
  std::printf("CGTREE_SEED=%lu\n", first);
  std::fflush(stdout);  // a check of the library's own ends the process
  for (unsigned long i = GetParam(); i < programs && !HasFailure(); i += kParts) {
    std::mt19937 random(static_cast<unsigned>(first + i));
    const StepProgram program = draw_program(random);
    const std::uint64_t seed = first + i;
    if (run(program, seed, "None").empty()) continue;
    const StepProgram small = shrink(program, [&](const StepProgram& candidate) {
      return !run(candidate, seed, "None").empty();
    });
    ADD_FAILURE() << run(small, seed, "None") << "\nseed " << seed << "\nprogram "
                  << to_text(small);
  }
  EXPECT_GT(totals_.replays, totals_.recordings);
}

// The proof that the above could fail: waits between streams that do nothing.
TEST_F(RandomOrderTest, AMissingDependencyIsFound) {
  const unsigned first = std::random_device()();
  int found = 0;
  for (unsigned seed = first; seed < first + 200 && found == 0; ++seed) {
    std::mt19937 random(seed);
    found += !run(draw_program(random), seed, "WaitIsDropped").empty();
  }
  EXPECT_EQ(found, 1) << "seed " << first;
}

}  // namespace
}  // namespace cgtree::testing
