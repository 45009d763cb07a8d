// Every program of up to three calls over three small functions, and many of four, with every
// pattern of held, dropped and ended outputs: values equal those of eager execution, and the number
// of recordings settles. Each run takes a random third of the programs; with CGTREE_EXHAUSTIVE it
// takes all.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "cgtree/cgtree.h"
#include "tests/support/counting_segments.h"
#include "tests/support/devices.h"
#include "tests/support/inside.h"
#include "tests/support/steps.h"

namespace cgtree::testing {
namespace {

constexpr int kMaxCalls = 4;
constexpr int kMaxValues = 2 * kMaxCalls;  // outputs of a program
constexpr int kEager = -1;  // an input from outside the context, at a new address each time
constexpr std::int64_t kElements = 2;

using Floats = std::array<float, kElements>;

enum class Function { kF, kG, kH };  // one input; two outputs; two inputs

// An input is the number of a value, in the order of creation, or kEager.
struct Call {
  Function function = Function::kF;
  int x = kEager;
  int y = kEager;             // for kH only
  bool marks_step = false;    // before the call
  std::uint32_t dropped = 0;  // after the call, one bit per value
};
using Program = std::vector<Call>;

int outputs_of(Function function) {
  return function == Function::kG ? 2 : 1;
}

std::string to_string(const Program& program) {
  std::string text;
  for (const Call& call : program) {
    if (call.marks_step) text += "mark_step; ";
    text += fmt::format("{}({}", "fgh"[static_cast<int>(call.function)], call.x);
    if (call.function == Function::kH) text += fmt::format(", {}", call.y);
    text += call.dropped == 0 ? "); " : fmt::format("), drop {:#x}; ", call.dropped);
  }
  return text;
}

// Visits every program of 1 to `max_calls` calls once. Programs with the same effect as another are
// left out: drops after the last call (the end of a round drops them), a mark_step() without live
// outputs, and h(y, x) beside h(x, y).
template <typename Visit>
class Enumeration {
 public:
  Enumeration(int max_calls, Visit visit) : max_calls_(max_calls), visit_(std::move(visit)) {
    extend(0, 0);
  }

 private:
  void extend(std::uint32_t live, int made) {
    if (static_cast<int>(program_.size()) == max_calls_) return;
    for_each_call(live, made, /*marks_step=*/false);
    if (live != 0) for_each_call(0, made, /*marks_step=*/true);
  }

  void for_each_call(std::uint32_t live, int made, bool marks_step) {
    for (int x = kEager; x < made; ++x) {
      if (!may_use(live, x)) continue;
      with({Function::kF, x, kEager, marks_step}, live, made);
      with({Function::kG, x, kEager, marks_step}, live, made);
      for (int y = x; y < made; ++y) {
        if (may_use(live, y)) with({Function::kH, x, y, marks_step}, live, made);
      }
    }
  }

  void with(Call call, std::uint32_t live, int made) {
    for (int i = outputs_of(call.function); i > 0; --i)
      live |= 1U << made++;
    program_.push_back(call);
    visit_(program_);
    for (std::uint32_t dropped = live;; dropped = (dropped - 1) & live) {  // every subset
      program_.back().dropped = dropped;
      extend(live & ~dropped, made);
      if (dropped == 0) break;
    }
    program_.pop_back();
  }

  static bool may_use(std::uint32_t live, int value) {
    return value == kEager || ((live >> value) & 1) != 0;
  }

  const int max_calls_;
  Visit visit_;
  Program program_;
};

// The functions in plain arithmetic.
Floats affine_of(Floats x, float scale, float shift) {
  for (float& value : x)
    value = scale * value + shift;
  return x;
}

std::array<Floats, 2> expected_of(Function function, const Floats& x, const Floats& y) {
  switch (function) {
    case Function::kF:
      return {affine_of(x, 0.5f, 1), {}};
    case Function::kG:
      return {affine_of(x, -1, 0), affine_of(affine_of(x, 0.25f, 2), 1, 1)};
    case Function::kH:
      break;
  }
  Floats sum = affine_of(x, 0.5f, 0);
  for (std::size_t i = 0; i < sum.size(); ++i)
    sum[i] += y[i];
  return {sum, {}};
}

// The end of a round, before the program is run again.
enum class Ending {
  kDropAll,
  kMarkStep,         // handles are kept, and stale
  kHoldTillReplaced  // like variables of a loop
};

// A context in which programs run, round after round.
class Rounds {
 public:
  explicit Rounds(Device device)
      : segments_(device), context_(std::in_place, device, ContextOptions{.segments = &segments_}) {
    for (Tensor& input : inputs_)
      input = empty({kElements}, DType::kFloat32, device);
  }

  // Runs the program once. Returns false, and records a failure, if a value is wrong.
  bool round(const Program& program, Ending ending) {
    int made = 0;
    for (const Call& call : program) {
      if (call.marks_step) mark_step();
      execute(call, made);
      for (int i = 0; i < kMaxValues; ++i) {
        if (((call.dropped >> i) & 1) != 0) held_[i] = {};
      }
      made += outputs_of(call.function);
      if (!values_are_right()) return false;
    }
    if (ending == Ending::kMarkStep) mark_step();
    if (ending == Ending::kDropAll) held_ = {};
    return true;
  }

  void drop_all() { held_ = {}; }
  std::uint64_t recordings() const { return context_->stats().recordings; }
  std::uint64_t skips() const { return context_->stats().skipped(); }
  std::size_t live_outputs() const { return context_->stats().live_outputs; }
  void validate() { cgtree::testing::validate(*context_); }
  int segments() const { return segments_.held(); }
  // Destroys functions and context; the segments stay, so that they can be counted.
  void end() {
    f_.reset();
    g_.reset();
    h_.reset();
    context_.reset();
  }

 private:
  struct Held {
    Tensor tensor;
    Floats expected{};
    bool is_stale = false;
  };

  void mark_step() {
    context_->mark_step();
    for (Held& held : held_) {  // the copy of an output does not become stale
      const Tensor& tensor = held.tensor;
      held.is_stale = tensor.defined() && manages(*context_, tensor);
    }
  }

  Held input(int value) {
    if (value != kEager) return held_[value];
    Held fresh{inputs_[inputs_made_ % 2], {}};
    ++inputs_made_;
    fresh.expected = {static_cast<float>(inputs_made_), 0.25f * static_cast<float>(inputs_made_)};
    fresh.tensor.copy_from(std::span<const float>(fresh.expected));
    return fresh;
  }

  void execute(const Call& call, int made) {
    const Held x = input(call.x);
    const Held y = call.y == call.x ? x : input(call.y);
    const auto [first, second] = expected_of(call.function, x.expected, y.expected);
    switch (call.function) {
      case Function::kF:
        held_[made] = {(*f_)(x.tensor), first};
        break;
      case Function::kG: {
        auto outputs = (*g_)(x.tensor);
        held_[made] = {std::move(outputs.first), first};
        held_[made + 1] = {std::move(outputs.second), second};
        break;
      }
      case Function::kH:
        held_[made] = {(*h_)(x.tensor, y.tensor), first};
        break;
    }
  }

  bool values_are_right() const {
    for (const Held& held : held_) {
      if (!held.tensor.defined()) continue;
      const bool is_stale = held.tensor.storage()->state() == Storage::State::kStale;
      EXPECT_EQ(is_stale, held.is_stale);
      if (is_stale || held.is_stale) continue;
      Floats values{};
      held.tensor.copy_to_host(values.data(), sizeof(values));
      EXPECT_EQ(values, held.expected);
    }
    return !::testing::Test::HasFailure();
  }

  CountingSegments segments_;
  std::optional<Context> context_;
  using One = CompiledFunction<Tensor(Tensor)>;
  using Two = CompiledFunction<std::pair<Tensor, Tensor>(Tensor)>;
  using Sum = CompiledFunction<Tensor(Tensor, Tensor)>;
  std::optional<One> f_ = compile(*context_, "f", [](Tensor x) { return affine(x, 0.5f, 1); });
  std::optional<Two> g_ = compile(*context_, "g", [](Tensor x) {
    return std::pair(affine(x, -1, 0), affine(affine(x, 0.25f, 2), 1, 1));
  });
  std::optional<Sum> h_ =
      compile(*context_, "h", [](Tensor x, Tensor y) { return add(affine(x, 0.5f, 0), y); });
  Tensor inputs_[2];
  int inputs_made_ = 0;
  std::array<Held, kMaxValues> held_;
};

int functions_in(const Program& program) {
  std::uint32_t seen = 0;
  for (const Call& call : program)
    seen |= 1U << static_cast<int>(call.function);
  return std::popcount(seen);
}

// Selects every third program from a random one on, or all.
class Third {
 public:
  bool has_next() { return next_++ % step_ == first_; }
  unsigned first() const { return first_; }

 private:
  const unsigned step_ = std::getenv("CGTREE_EXHAUSTIVE") != nullptr ? 1 : 3;
  const unsigned first_ = std::random_device{}() % step_;
  unsigned next_ = 0;
};

// The device, and the part of the programs: every kParts-th from this one on.
constexpr int kParts = 4;
class ExhaustiveTest : public ::testing::TestWithParam<std::tuple<DeviceUnderTest, int>> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(device()); }
  const DeviceUnderTest& device() const { return std::get<0>(GetParam()); }

  // Calls `check` for programs of up to `max_calls` calls: one in `every` of this part, and of
  // these the third of this run.
  template <typename Check>
  void for_each_program(int max_calls, int every, Check check) {
    int number = 0;
    int checked = 0;
    Third third;
    const Enumeration all(max_calls, [&](const Program& program) {
      if (HasFailure() || number++ % (kParts * every) != std::get<1>(GetParam())) return;
      if (!third.has_next()) return;
      ++checked;
      SCOPED_TRACE(to_string(program));
      check(program);
    });
    std::printf("%d of %d programs of up to %d calls, from number %u on\n", checked, number,
                max_calls, third.first());
  }

  // Runs the program in a new context: expects at most `most` recordings, and none after `settled`
  // rounds.
  void expect_settles(const Program& program, Ending ending, std::uint64_t most, int settled) {
    Rounds rounds(device().device);
    std::uint64_t recordings = 0;
    for (int round = 1; round <= settled + 1; ++round) {
      recordings = rounds.recordings();
      if (!rounds.round(program, ending)) return;
    }
    EXPECT_EQ(rounds.recordings(), recordings) << "still recording in round " << settled + 1;
    EXPECT_LE(recordings, most);
    expect_nothing_is_left(rounds);
  }

  void expect_nothing_is_left(Rounds& rounds) {
    EXPECT_EQ(rounds.skips(), 0u);
    rounds.drop_all();
    EXPECT_EQ(rounds.live_outputs(), 0u);
    rounds.validate();
    rounds.end();
    EXPECT_EQ(rounds.segments(), 0);
  }

  bool on_host() const { return device().device.type == DeviceType::kHost; }
};
INSTANTIATE_TEST_SUITE_P(Devices, ExhaustiveTest,
                         ::testing::Combine(::testing::ValuesIn(devices_under_test()),
                                            ::testing::Range(0, kParts)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param).name,
                                              std::get<1>(info.param));
                         });

// Every round begins with an empty pool. Round 1 warms up d functions and records at most n - d of
// n calls. A warm-up moves outputs, so that later rounds find them at other addresses, and record
// each call at most once more.
std::uint64_t most_recordings(const Program& program) {
  return 2 * program.size() - functions_in(program);
}

// The previous successor decides between two recordings that fit, so a few programs of four calls
// need a fourth round.
TEST_P(ExhaustiveTest, ProgramsWhoseOutputsAreDroppedSettle) {
  for_each_program(kMaxCalls - 1, on_host() ? 1 : 4, [&](const Program& program) {
    expect_settles(program, Ending::kDropAll, most_recordings(program), 2);
  });
  for_each_program(kMaxCalls, on_host() ? 211 : 1009, [&](const Program& program) {
    expect_settles(program, Ending::kDropAll, most_recordings(program), 4);
  });
}

// After a mark_step() the pool is as empty as after dropping all outputs.
TEST_P(ExhaustiveTest, ProgramsThatEndTheirStepSettle) {
  for_each_program(kMaxCalls - 1, on_host() ? 1 : 4, [&](const Program& program) {
    expect_settles(program, Ending::kMarkStep, most_recordings(program), 2);
  });
}

// The outputs of two rounds, at most 2 m, are live at once, and a call is recorded only if no
// recording fits. The bounds are measured, over all programs.
TEST_P(ExhaustiveTest, ProgramsWhoseOutputsAreHeldTillReplacedSettle) {
  constexpr std::uint64_t kMost[] = {0, 4, 16, 64};
  for_each_program(kMaxCalls - 1, on_host() ? 1 : 40, [&](const Program& program) {
    expect_settles(program, Ending::kHoldTillReplaced, kMost[program.size()], 48);
  });
}

// Runs all programs with the same first three calls in one context. A call is recorded only if no
// recording fits, so never twice for the same function, addresses of inputs and live slots; the
// number of these states does not depend on the number of programs. The bound is measured.
TEST_P(ExhaustiveTest, ProgramsOfFourCallsShareABoundedNumberOfRecordings) {
  constexpr std::uint64_t kMost = 64;
  const int every = on_host() ? 3 : 301;
  std::optional<Rounds> rounds;
  int family = 0;
  int programs = 0;
  Third third;
  std::uint64_t most = 0;
  const auto end = [&] {
    if (!rounds) return;
    most = std::max(most, rounds->recordings());
    expect_nothing_is_left(*rounds);
    rounds.reset();
  };
  const Enumeration all(kMaxCalls, [&](const Program& program) {
    if (program.size() == kMaxCalls - 1) {
      end();
      const bool is_of_part = family++ % (kParts * every) == std::get<1>(GetParam());
      if (is_of_part && third.has_next()) rounds.emplace(device().device);
    }
    if (program.size() != kMaxCalls || !rounds || HasFailure()) return;
    ++programs;
    SCOPED_TRACE(to_string(program));
    (void)rounds->round(program, Ending::kDropAll);
  });
  end();
  EXPECT_LE(most, kMost);
  std::printf("%d programs of four calls, at most %lu recordings in a context\n", programs, most);
}

}  // namespace
}  // namespace cgtree::testing
