// Random programs: the results of calls through the tree, against the same arithmetic on the host.
//
// Many short programs: see StepProgram. CGTREE_PROGRAMS: their number. CGTREE_SEED: the seed of the
// first. CGTREE_PROGRAM: a single program to run, as a failure prints it.
//
// One long program, a random sequence of four actions: call a function on variables of a few
// shapes, some eager and some outputs of earlier calls, and store the result in a variable; drop a
// variable; check all variables; end the step. Every variable must hold the value of eager
// execution.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/inside.h"
#include "tests/support/tree_fixture.h"
#include "tests/system/program_runner.h"

namespace cgtree::testing {
namespace {

class DifferentialTest : public TreeTest {
 protected:
  struct Variable {
    Tensor tensor;
    std::vector<float> expected;
  };

  int pick(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }

  void check(const std::vector<Variable>& variables, int operation) {
    for (std::size_t i = 0; i < variables.size(); ++i) {
      if (!variables[i].tensor.defined()) continue;
      ASSERT_EQ(values(variables[i].tensor), variables[i].expected)
          << "variable " << i << ", operation " << operation << ", seed " << seed_;
    }
  }

  // Elements per variable; a variable keeps its size.
  static constexpr std::int64_t kSizes[] = {3, 200, 3, 200, 1500};
  static constexpr int kVariables = 5;
};
CGTREE_ON_ALL_DEVICES(DifferentialTest);

// Acceptance: random cudagraph_indexing_ops.
TEST_P(DifferentialTest, RandomProgramsGiveWhatEagerExecutionGives) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 0.5f, 1); });
  CompiledFunction g = compile(context(), "g", [](Tensor x) {
    return std::pair(affine(x, -1, 0), affine(affine(x, 0.25f, 2), 1, 1));
  });
  CompiledFunction h = compile(context(), "h", [](Tensor x, Tensor y) {
    return add(affine(x, 0.5f, 0), affine(y, 0.5f, 0));
  });
  std::vector<Variable> variables(kVariables);
  const auto fresh = [&](int i) {
    variables[i].expected = random_floats(kSizes[i]);
    variables[i].tensor = tensor({kSizes[i]}, variables[i].expected);
  };
  for (int i = 0; i < kVariables; ++i)
    fresh(i);

  const int operations = 1500;
  for (int operation = 0; operation < operations; ++operation) {
    const int i = pick(kVariables);
    Variable& x = variables[i];
    if (!x.tensor.defined()) fresh(i);
    // The other variable of the same size, or the same one.
    const int j = i < 4 ? (i + 2) % 4 : i;
    Variable& y = variables[j];
    if (!y.tensor.defined()) fresh(j);
    switch (pick(8)) {
      case 0:
      case 1:
        x = {f(x.tensor), affine_of(x.expected, 0.5f, 1)};
        break;
      case 2:
      case 3: {
        const auto [first, second] = g(x.tensor);
        const std::vector<float> source = x.expected;
        x = {first, affine_of(source, -1, 0)};
        if (j != i) y = {second, affine_of(affine_of(source, 0.25f, 2), 1, 1)};
        break;
      }
      case 4:
      case 5: {
        std::vector<float> sum = affine_of(x.expected, 0.5f, 0);
        const std::vector<float> other = affine_of(y.expected, 0.5f, 0);
        for (std::size_t k = 0; k < sum.size(); ++k)
          sum[k] += other[k];
        x = {h(x.tensor, y.tensor), sum};
        break;
      }
      case 6:
        x.tensor = Tensor();
        break;
      case 7:
        if (pick(6) != 0) break;
        context().mark_step();  // managed variables become stale: replace all
        for (int k = 0; k < kVariables; ++k)
          fresh(k);
        break;
    }
    if (operation % 10 == 0) {
      check(variables, operation);
      cgtree::testing::validate(context());
    }
    if (HasFatalFailure()) return;
  }
  check(variables, operations);

  const ContextStats all = stats();
  RecordProperty("recordings", static_cast<int>(all.recordings));
  RecordProperty("replays", static_cast<int>(all.replays));
  EXPECT_GT(all.replays, all.recordings);
  EXPECT_EQ(all.failures, 0u);
}

const char* from_environment(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

// The device, and the part of the programs.
constexpr unsigned kParts = 4;
class ShortProgramsTest : public ::testing::TestWithParam<std::tuple<DeviceUnderTest, unsigned>> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(device());
    set_log_sink([](LogLevel, const std::string&) {});  // programs provoke thousands of log lines
  }
  void TearDown() override { set_log_sink(nullptr); }
  const DeviceUnderTest& device() const { return std::get<0>(GetParam()); }

  std::string run(const StepProgram& program, bool enabled) {
    return ProgramRunner(device().device, enabled).run(program, totals_);
  }
  // Reports the smallest program that fails in the same way.
  void report(const StepProgram& program, bool enabled, unsigned seed) {
    const StepProgram small = shrink(
        program, [&](const StepProgram& candidate) { return !run(candidate, enabled).empty(); });
    ADD_FAILURE() << run(small, enabled) << (enabled ? "" : ", eagerly") << "\nseed " << seed
                  << "\nCGTREE_PROGRAM='" << to_text(small) << "'";
  }

  ProgramTotals totals_;
};
INSTANTIATE_TEST_SUITE_P(Devices, ShortProgramsTest,
                         ::testing::Combine(::testing::ValuesIn(devices_under_test()),
                                            ::testing::Range(0U, kParts)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param).name,
                                              std::get<1>(info.param));
                         });

// Acceptance: random cudagraph_indexing_ops.
TEST_P(ShortProgramsTest, GiveWhatEagerExecutionGives) {
  const bool on_host = device().device.type == DeviceType::kHost;
  const unsigned long programs =
      std::stoul(from_environment("CGTREE_PROGRAMS", on_host ? "3000" : "1000"));
  const unsigned first = static_cast<unsigned>(
      std::stoul(from_environment("CGTREE_SEED", std::to_string(std::random_device()()).c_str())));
  std::printf("seed %u\n", first);
  std::fflush(stdout);  // a failed internal check ends the process
  for (unsigned i = std::get<1>(GetParam()); i < programs && !HasFailure(); i += kParts) {
    std::mt19937 random(first + i);
    const StepProgram program = draw_program(random);
    if (!run(program, true).empty()) report(program, true, first + i);
    if (i % 16 < kParts && !run(program, false).empty()) report(program, false, first + i);
  }
  std::printf("%lu programs in %u parts; here: calls %lu recordings %lu replays %lu faults %lu\n",
              programs, kParts, totals_.calls, totals_.recordings, totals_.replays, totals_.faults);
  EXPECT_GT(totals_.replays, totals_.recordings);
  EXPECT_GT(totals_.faults, 0u);
}

// Runs CGTREE_PROGRAM, as a failure prints it, or else a random program.
TEST_P(ShortProgramsTest, OneProgramFromTheEnvironmentRunsAlone) {
  const char* const given = std::getenv("CGTREE_PROGRAM");
  std::mt19937 random(std::random_device{}());
  const std::string text = given != nullptr ? given : to_text(draw_program(random));
  EXPECT_EQ(run(parse_program(text), true), "") << text;
}

TEST(StepProgramTest, PrintedProgramsCanBeRead) {
  std::mt19937 random(std::random_device{}());
  const std::string text = to_text(draw_program(random));

  EXPECT_EQ(to_text(parse_program(text)), text);
  EXPECT_THROW((void)parse_program("4 0.0.0.0.0.0"), InvalidArgument);
  EXPECT_THROW((void)parse_program("4: 0.0.0"), InvalidArgument);
  EXPECT_THROW((void)parse_program("4: 99.0.0.0.0.0"), InvalidArgument);
}

TEST(StepProgramTest, ShrinkingLeavesOnlyWhatTheFailureNeeds) {
  std::mt19937 random(std::random_device{}());
  StepProgram program = draw_program(random);
  program.operations.push_back({Action::kMarkStep});
  program.operations.push_back({Action::kBump, 3});

  const StepProgram small = shrink(program, [](const StepProgram& candidate) {
    return std::any_of(candidate.operations.begin(), candidate.operations.end(),
                       [](const Operation& o) { return o.action == Action::kBump && o.x == 3; });
  });

  EXPECT_EQ(small.rounds, 1);
  ASSERT_EQ(small.operations.size(), 1u);
  EXPECT_EQ(small.operations[0].action, Action::kBump);
}

}  // namespace
}  // namespace cgtree::testing
