// Random programs on the host device that runs work in a random order and checks all memory
// accesses: the tree may rely only on the order that CUDA guarantees.
//
// CGTREE_PROGRAMS: their number. CGTREE_SEED: the first seed, of the program and of the order.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "cgtree/cgtree.h"
#include "simulator/strict_memory.h"
#include "tests/support/host_slot.h"
#include "tests/support/mutant_device.h"
#include "tests/support/steps.h"
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
    set_log_sink([](LogLevel, const std::string&) {});  // programs provoke thousands of log lines
  }
  void TearDown() override {
    HostSlot::instance().put(host_device_api());
    set_log_sink(nullptr);
  }

  // Returns the failure or the device's findings; `mutant`: a fault of the device, or "None".
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
  const unsigned long programs = from_environment("CGTREE_PROGRAMS", 3'000);
  const unsigned long first = from_environment("CGTREE_SEED", std::random_device()());
  std::printf("CGTREE_SEED=%lu\n", first);
  std::fflush(stdout);  // a failed internal check ends the process
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

// Shows that the test above can fail: waits between streams have no effect.
TEST_F(RandomOrderTest, AMissingDependencyIsFound) {
  const unsigned first = std::random_device()();
  int found = 0;
  for (unsigned seed = first; seed < first + 200 && found == 0; ++seed) {
    std::mt19937 random(seed);
    found += !run(draw_program(random), seed, "WaitIsDropped").empty();
  }
  EXPECT_EQ(found, 1) << "seed " << first;
}

// The step has run before the buffer turns out to be too small: later work of the caller must still
// be ordered after the step's work.
TEST_F(RandomOrderTest, ACallThatThrowsLeavesTheCallersStreamBehindItsWork) {
  constexpr std::int64_t kSize = 16;
  const unsigned first = std::random_device()();
  int wrong = 0;
  for (unsigned seed = first; seed < first + 200; ++seed) {
    const StrictHostDevice host =
        make_strict_host_device({.executor = HostExecutor::kRandom, .seed = seed});
    HostSlot::instance().put(*host.device);
    const Device device = HostSlot::instance().device();
    Context context(device);
    const CompiledFunction f = compile(context, "f",
                                       [](Tensor x) {
                                         for (int i = 0; i < 4; ++i)
                                           update(x, 0, 1);
                                         return affine(x, 1, 0);
                                       },
                                       {.inputs = {{.is_static = true, .is_mutated = true}}});
    const Tensor x = from_host<float>({kSize}, std::vector<float>(kSize, 0), device);
    const Tensor too_small = empty({1}, DType::kFloat32, device);
    const Stream stream(device);
    {
      const StreamScope scope(stream);
      EXPECT_THROW((void)f.into(too_small)(x), InvalidArgument);
      update(x, 0, 7);
    }
    static_cast<void>(host.device->synchronize_device(0));
    wrong += x.to_vector<float>() != std::vector<float>(kSize, 7);
  }
  EXPECT_EQ(wrong, 0) << "of 200, seed " << first;
}

}  // namespace
}  // namespace cgtree::testing
