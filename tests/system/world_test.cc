// Random programs for several contexts, streams and threads, on the host device that runs work in a
// random order: see world.h.
//
// CGTREE_WORLD_FEATURES: the features ("streams,axes", "all,-imports"; see kFeaturesByDefault).
// CGTREE_PROGRAMS: the number of programs. CGTREE_SEED: the first seed, of the program and of the
// order. CGTREE_PROGRAM: a single program to run, as a failure prints it, with CGTREE_SEED.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "interop/device/code.h"
#include "simulator/strict_memory.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/host_slot.h"
#include "tests/support/mutant_device.h"
#include "tests/system/world.h"

namespace cgtree::testing {
namespace {

std::string from_environment(const char* name, const std::string& otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

constexpr unsigned kParts = 4;
constexpr const char* kFeaturesByDefault = "all";
constexpr int kTries = 4;  // orders in which a shrunk program is run

// Counts the events of a device.
class EventCounter : public CallHook {
 public:
  Code around(const DeviceCall& call, Forward forward) override {
    const Code code = forward();
    if (ok(code) && call.function == std::string_view("create_event")) ++events;
    if (ok(code) && call.function == std::string_view("destroy_event")) --events;
    return code;
  }
  std::atomic<long> events = 0;
};

// The program that is running, printed if the process dies.
char g_running[32'000];

void tell_program(int signal) {
  static_cast<void>(!::write(STDERR_FILENO, g_running, std::strlen(g_running)));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void note_program(const std::string& text, std::uint64_t seed) {
  std::snprintf(g_running, sizeof(g_running),
                "the process ends in CGTREE_SEED=%llu CGTREE_PROGRAM='%s'\n",
                static_cast<unsigned long long>(seed), text.c_str());
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS})
    std::signal(signal, tell_program);
}

// Entries of WorldTotals::done that must occur in a part of 4,000 programs.
constexpr std::string_view kDone[] = {
    "a step branches and loops",
    "a step hands out rows",
    "a loop is stopped",
    "a step that branches throws",
    "a break assigns the block",
    "a break drops the block",
    "a break assigns the input",
    "a break drops the input",
    "a break throws",
    "a break calls",
    "a break ends the generation",
    "a break gives back memory",
    "a break allocates",
    "a break reads statistics",
    "a break opens an eager scope",
    "a break explains",
    "a break of a step adds to the block",
    "a break of a step throws",
    "a break of a step ends the step",
    "a break of a step begins another",
    "a break of a step calls",
    "a step is held after its end",
    "a call with many inputs",
    "one of many inputs is an eager tensor of the context",
    "an output that has ended is passed",
    "an input is returned",
    "an input is returned into a buffer",
    "an output is on another device",
    "an input is on another device",
    "a closure reads an output of another context",
    "a replay has asked guards",
    "a recording is replayed for another session",
    "a recording leaves memory",
    "a call draws",
    "a call that draws throws",
    "sizes are recorded beforehand",
    "sizes are recorded while others are",
    "inputs of a precapture throw",
    "a size is learned",
    "a size that is learned is replayed",
    "a learner is idle inside a call",
    "a thread of its own captures",
    "a break of a step explains",
    "memory goes while another thread is inside",
    "an output has as many rows as the key says",
    "a stream ends with work under way",
    "a reader on another stream",
    "readers whose streams end",
    "before_first_launch allocates, and inputs are rebound",
    "a call in a capture has an imported input",
    "a call in a capture has an output of another context",
    "a call in a capture reads what another context has written",
    "a step of an engine is verified",
    "a break of a step destroys a function",
    "a rebound input must have no gaps",
    "an input with gaps is refused",
    "another context writes again and again what is read",
    "a result that is kept is copied",
};

class WorldTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink([](LogLevel, const std::string&) {});
  }
  void TearDown() override {
    HostSlot::instance().put(host_device_api());
    set_log_sink(nullptr);
  }

  // Returns the failure, or "". One program in eight runs in strict mode, which is slower.
  std::string run(const WorldProgram& program, std::uint64_t seed, const char* mutant = "None") {
    note_program(to_text(program), seed);
    const HostDeviceOptions options{.executor = HostExecutor::kRandom, .seed = seed, .devices = 2};
    if (seed % 8 != 0) {
      const auto host = make_host_device(options);
      const auto faulty = make_mutant(mutant, *host);
      EventCounter counter;
      ForwardingDevice device(*faulty, counter);
      HostSlot::instance().put(device);
      return World(HostSlot::instance().device(), program, totals_, &counter.events).run();
    }
    const StrictHostDevice host = make_strict_host_device(options);
    HostSlot::instance().put(*host.device);
    std::string text = World(HostSlot::instance().device(), program, totals_).run();
    static_cast<void>(host.device->synchronize_device(0));
    for (const std::string& finding : host.memory->take_findings())
      text += "\n" + finding;
    return text;
  }
  bool fails(const WorldProgram& program, std::uint64_t seed) {
    for (int i = 0; i < kTries; ++i) {
      if (!run(program, seed + 8 * i).empty()) return true;
    }
    return false;
  }

  WorldTotals totals_;
};
class WorldPartTest : public WorldTest, public ::testing::WithParamInterface<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Parts, WorldPartTest, ::testing::Range(0U, kParts));

TEST_P(WorldPartTest, EveryTensorHoldsWhatEagerExecutionGives) {
  const unsigned long programs = std::stoul(from_environment("CGTREE_PROGRAMS", "4000"));
  const unsigned long first =
      std::stoul(from_environment("CGTREE_SEED", std::to_string(std::random_device()())));
  const Features features =
      parse_features(from_environment("CGTREE_WORLD_FEATURES", kFeaturesByDefault));
  std::printf("CGTREE_SEED=%lu\n", first);
  std::fflush(stdout);  // a failed internal check ends the process
  const bool tells_each = std::getenv("CGTREE_TELL") != nullptr;
  const bool has_all = features == parse_features(kFeaturesByDefault);
  const auto is_missing = [&] {  // true while one of these has not happened
    const bool rebinds = totals_.rebound_inputs > 0 && totals_.rebound_replays > 0;
    if (!rebinds || totals_.replays <= totals_.recordings / 4) return true;
    if (!has_all) return false;
    const auto is_done = [&](std::string_view what) { return totals_.done.contains(what); };
    return totals_.rebound_buffers == 0 || totals_.verified == 0 || totals_.foreign == 0 ||
           totals_.declared == 0 || (programs >= 4000 && !std::ranges::all_of(kDone, is_done));
  };
  const auto goes_on = [&](unsigned long i) {
    return i < programs || (programs >= 2000 && is_missing());
  };
  for (unsigned long i = GetParam(); goes_on(i) && !HasFailure(); i += kParts) {
    const std::uint64_t seed = first + i;
    // Programs of consecutive seeds would otherwise be alike.
    std::seed_seq numbers{static_cast<unsigned>(seed)};
    std::mt19937 random(numbers);
    const WorldProgram program = draw_world(random, features);
    if (tells_each) {
      std::fprintf(stderr, "CGTREE_SEED=%lu CGTREE_PROGRAM='%s'\n", seed, to_text(program).c_str());
    }
    const std::string what = run(program, seed);
    if (what.empty()) continue;
    const WorldProgram small =
        shrink(program, [&](const WorldProgram& candidate) { return fails(candidate, seed); });
    ADD_FAILURE() << what << "\nseed " << seed << ", shrunk: " << run(small, seed) << "\n"
                  << to_listing(small) << "CGTREE_SEED=" << seed << " CGTREE_PROGRAM='"
                  << to_text(small) << "'";
  }
  fmt::print(
      "calls {} recordings {} replays {} evictions {} launches {} refused {} verified {} rebound: "
      "inputs {} buffers {} replays {}; recordings with foreign memory {}, declared memory {}\n",
      totals_.calls, totals_.recordings, totals_.replays, totals_.evictions, totals_.launches,
      totals_.refused, totals_.verified, totals_.rebound_inputs, totals_.rebound_buffers,
      totals_.rebound_replays, totals_.foreign, totals_.declared);
  for (const auto& [what, count] : totals_.done)
    fmt::print("{} {}\n", count, what);
  fmt::print("at most {} events\n", totals_.most_events);
}

// Shows that the test above can fail: waits between streams have no effect.
TEST_F(WorldTest, AMissingDependencyIsFound) {
  const unsigned first = std::random_device()() / 8 * 8 + 1;
  int found = 0;
  for (unsigned seed = first; seed < first + 400 && found == 0; ++seed) {
    std::mt19937 random(seed);
    if (seed % 8 == 0) continue;  // strict mode does not use the mutant
    found += !run(draw_world(random, parse_features("imports")), seed, "WaitIsDropped").empty();
  }
  EXPECT_EQ(found, 1) << "seed " << first;
}

TEST_F(WorldTest, OneProgramFromTheEnvironmentRunsAlone) {
  std::mt19937 random(std::random_device{}());
  const std::string text = from_environment(
      "CGTREE_PROGRAM", to_text(draw_world(random, parse_features(kFeaturesByDefault))));
  const std::uint64_t seed = std::stoul(from_environment("CGTREE_SEED", "1"));
  for (int i = 0; i < kTries && !HasFailure(); ++i)
    EXPECT_EQ(run(parse_world(text), seed + 8 * static_cast<unsigned>(i)), "") << text;
}

TEST(WorldProgramTest, PrintedProgramsCanBeRead) {
  std::mt19937 random(std::random_device{}());
  const std::string text = to_text(draw_world(random, parse_features("all")));

  EXPECT_EQ(to_text(parse_world(text)), text);
  EXPECT_THROW((void)parse_world("1 2.3 4:"), InvalidArgument);
  EXPECT_THROW((void)parse_world("1 2.3.4 5: 0.0"), InvalidArgument);
  EXPECT_THROW((void)parse_world("1 2.3.4 5: 99.0.0.0.0.0.0.0"), InvalidArgument);
}

TEST(WorldProgramTest, FeaturesAreReadFromText) {
  EXPECT_EQ(parse_features("streams,axes"), bit(Feature::kStreams) | bit(Feature::kAxes));
  EXPECT_EQ(parse_features("all,-axes") | bit(Feature::kAxes), parse_features("all"));
  EXPECT_EQ(parse_features("none"), 0u);
  EXPECT_THROW((void)parse_features("steams"), InvalidArgument);
}

TEST(WorldProgramTest, ShrinkingLeavesOnlyWhatTheFailureNeeds) {
  std::mt19937 random(std::random_device{}());
  WorldProgram program = draw_world(random, parse_features("all"));
  program.operations.push_back({Deed::kMarkStep});
  program.operations.push_back({Deed::kBump, 3});

  const WorldProgram small = shrink(program, [](const WorldProgram& candidate) {
    return std::ranges::any_of(candidate.operations, [](const WorldOperation& o) {
      return o.deed == Deed::kBump && o.x == 3;
    });
  });

  EXPECT_EQ(small.rounds, 1);
  EXPECT_EQ(small.features, 0u);
  ASSERT_EQ(small.operations.size(), 1u);
}

}  // namespace
}  // namespace cgtree::testing
