// Results that are held forever: a function records a few times, and then copies its outputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cgtree/tree/tree.h"
#include "extensions/ranks/group.h"
#include "extensions/verify/verify.h"
#include "extensions/watch/monitor.h"
#include "tests/support/captured_log.h"
#include "tests/support/inside.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kCalls = 220;
// Recordings for held outputs, and two more for inputs that change from outputs of the context to
// copies.
constexpr std::uint64_t kMostRecordings = KeyState::kBeforeCopies + 4;

class CopiedOutputsTest : public TreeTest {
 protected:
  struct Kept {
    Tensor tensor;
    std::vector<float> expected;
  };

  // Holds a result, and the values that it must have to the end.
  void keep(Tensor tensor, std::vector<float> expected) {
    kept_.push_back({std::move(tensor), std::move(expected)});
  }
  void expect_all_kept() {
    for (std::size_t i = 0; i < kept_.size(); ++i)
      ASSERT_EQ(values(kept_[i].tensor), kept_[i].expected) << i;
  }
  template <typename Function>
  void expect_replays(const Function& f, std::uint64_t calls = kCalls) {
    const FunctionStats counts = f.stats();
    EXPECT_LE(counts.recordings, kMostRecordings);
    EXPECT_EQ(counts.skipped(), 0u);
    EXPECT_GE(counts.replays, calls - 1 - kMostRecordings);
  }
  // The treatment of the first input in the last recording.
  std::string last_treatment() {
    const auto snapshot = nlohmann::json::parse(snapshot_json(context()));
    return snapshot["nodes"].back()["inputs"][0]["treatment"];
  }
  void TearDown() override {
    kept_.clear();
    TreeTest::TearDown();
  }

  std::vector<Kept> kept_;
};
CGTREE_ON_ALL_DEVICES(CopiedOutputsTest);

TEST_P(CopiedOutputsTest, ResultsKeptForEverAreReplayedAfterAFewRecordings) {
  for (const AtLimit at_limit : {AtLimit::kRunEagerly, AtLimit::kEvict, AtLimit::kThrow}) {
    for (const bool apart : {false, true}) {
      make_context({.outputs_lie_apart = apart, .at_limit = at_limit});
      CompiledFunction f =
          compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); }, {.at_limit = at_limit});
      for (int call = 0; call < kCalls; ++call) {
        const std::vector<float> x = random_floats(33);
        keep(f(tensor({33}, x)), affine_of(x, 2, 1));
      }
      expect_all_kept();
      expect_replays(f);
      kept_.clear();
    }
  }
}

TEST_P(CopiedOutputsTest, AFewPlacesForRecordingsAreEnough) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); },
                               {.max_recordings = 2, .at_limit = AtLimit::kEvict});
  for (int call = 0; call < kCalls; ++call) {
    const std::vector<float> x = random_floats(8);
    keep(f(tensor({8}, x)), affine_of(x, 2, 1));
  }

  expect_all_kept();
  EXPECT_GE(f.stats().replays, 100u);
}

// Views that share memory share it in the copies, too; returned inputs stay the caller's tensors.
TEST_P(CopiedOutputsTest, OutputsThatShareMemoryShareItInTheirCopyToo) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    const Tensor y = affine(x, 2, 1);
    const Tensor z = affine(y, -1, 0);
    return std::tuple(x, y.slice(0, 70, 100), z, y, x.slice(0, 10, 30));
  });
  std::vector<Tensor> inputs;
  for (int call = 0; call < kCalls; ++call) {
    const std::vector<float> x = random_floats(100);
    const std::vector<float> y = affine_of(x, 2, 1);
    const Tensor& input = inputs.emplace_back(tensor({100}, x));
    auto [same, part, z, whole, view] = f(input);
    EXPECT_EQ(same.storage(), input.storage());
    EXPECT_EQ(view.storage(), input.storage());
    EXPECT_EQ(part.storage(), whole.storage());
    EXPECT_NE(part.storage(), z.storage());
    EXPECT_EQ(whole.address() % 64, 0u);
    keep(part, {y.begin() + 70, y.begin() + 100});
    keep(z, affine_of(y, -1, 0));
    keep(whole, y);
    keep(view, {x.begin() + 10, x.begin() + 30});
  }

  expect_all_kept();
  expect_replays(f);
}

TEST_P(CopiedOutputsTest, PaddedCallsHandOutCopiesOfTheirOwnSize) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); },
                               {.inputs = {{.dynamic = {{0, "n"}}}},
                                .buckets = {{"n", {16}}},
                                .outputs = {{.dynamic = {{0, "n"}}}}});
  for (int call = 0; call < kCalls; ++call) {
    const auto size = static_cast<std::int64_t>(1 + random_() % 16);
    const std::vector<float> x = random_floats(size);
    const Tensor y = f(tensor({size}, x));
    EXPECT_EQ(y.shape(), Shape{size});
    keep(y, affine_of(x, 2, 1));
  }

  expect_all_kept();
  expect_replays(f);
}

TEST_P(CopiedOutputsTest, OutputsWithABufferGoThereAndTheOthersAreCopied) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return std::pair(affine(x, 2, 1), affine(x, 3, 0)); });
  for (int call = 0; call < kCalls; ++call) {
    const std::vector<float> x = random_floats(20);
    const Tensor buffer = empty({20}, DType::kFloat32, device());
    const auto [first, second] = f.into(buffer, Tensor())(tensor({20}, x));
    EXPECT_EQ(first.address(), buffer.address());
    keep(first, affine_of(x, 2, 1));
    keep(second, affine_of(x, 3, 0));
  }

  expect_all_kept();
  expect_replays(f);
}

TEST_P(CopiedOutputsTest, InputsAreReboundBesideThem) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); },
                               {.inputs = {{.rebind = Rebind::kAlways}}});
  for (int call = 0; call < kCalls; ++call) {
    const std::vector<float> x = random_floats(64);
    keep(f(tensor({64}, x)), affine_of(x, 2, 1));
  }

  expect_all_kept();
  expect_replays(f);
  EXPECT_EQ(last_treatment(), "rebound");
}

// Six patches are cheaper than a root and a tail, but not than a root beside a tail that exists
// anyway.
TEST_P(CopiedOutputsTest, ATailThatCopiesOutputsMakesACopyOfAnInputCheaper) {
  CompiledFunction f = compile(context(), "f",
                               [](Tensor x) {
                                 for (int i = 0; i < 5; ++i)
                                   update(x, 1, 1);
                                 return affine(x, 2, 0);
                               },
                               {.inputs = {{.is_mutated = true, .rebind = Rebind::kAuto}}});
  for (int call = 0; call < kCalls; ++call) {
    const std::vector<float> x = random_floats(4);
    keep(f(tensor({4}, x)), affine_of(affine_of(x, 1, 5), 2, 0));
    if (call == 1) {
      EXPECT_EQ(last_treatment(), "rebound");
    }
  }

  expect_all_kept();
  EXPECT_EQ(last_treatment(), "copied_back");
}

TEST_P(CopiedOutputsTest, AStateThatIsFedBackAndKeptIsReplayed) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 0.5f, 1); });
  std::vector<float> expected = random_floats(10);
  Tensor y = tensor({10}, expected);
  for (int call = 0; call < kCalls; ++call) {
    y = f(y);
    expected = affine_of(expected, 0.5f, 1);
    keep(y, expected);
  }

  expect_all_kept();
  expect_replays(f);
}

// Each function gets outputs of the other as inputs, at addresses that are new to it.
TEST_P(CopiedOutputsTest, AChainOfFunctionsWhoseResultsAreAllKeptIsReplayed) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 0.5f, 1); });
  CompiledFunction g = compile(context(), "g", [](Tensor x, Tensor y) {
    return std::pair(affine(x, -1, 0), affine(y, 1, 2));
  });
  std::vector<float> of_y = random_floats(10);
  Tensor y = tensor({10}, of_y);
  for (int call = 0; call < kCalls; ++call) {
    const Tensor x = f(y);
    const std::vector<float> of_x = affine_of(of_y, 0.5f, 1);
    keep(x, of_x);
    const auto [first, second] = g(x, y);
    keep(second, affine_of(of_y, 1, 2));
    of_y = affine_of(of_x, -1, 0);
    keep(first, of_y);
    y = first;
  }

  expect_all_kept();
  EXPECT_LE(f.stats().recordings + g.stats().recordings, 2 * kMostRecordings);
  EXPECT_EQ(f.stats().skipped() + g.stats().skipped(), 0u);
}

// A mutated input is written in place, at each of its addresses.
TEST_P(CopiedOutputsTest, AKeptOutputThatAnotherFunctionWritesIsWritten) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  CompiledFunction bump = compile(context(), "bump",
                                  [](Tensor x) {
                                    update(x, 1, 1);
                                    return affine(x, -1, 0);
                                  },
                                  {.inputs = {{.is_mutated = true}}});
  for (int call = 0; call < kCalls; ++call) {
    const std::vector<float> x = random_floats(12);
    const Tensor y = f(tensor({12}, x));
    keep(bump(y), affine_of(affine_of(x, 2, 2), -1, 0));
    keep(y, affine_of(x, 2, 2));
  }

  expect_all_kept();
  expect_replays(f);
  expect_replays(bump);
}

TEST_P(CopiedOutputsTest, AfterTheResultsAreGoneOutputsAreNotCopied) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  const auto is_copied = [&] { return !manages(context(), f(random_tensor({9}))); };
  for (int call = 0; call < 50; ++call)
    keep(f(random_tensor({9})), {});
  EXPECT_TRUE(is_copied());
  const std::uint64_t recordings = f.stats().recordings;
  kept_.clear();

  EXPECT_FALSE(is_copied());
  for (int call = 0; call < 50; ++call)
    keep(f(random_tensor({9})), {});
  EXPECT_TRUE(is_copied());
  context().mark_step();
  EXPECT_FALSE(is_copied());
  EXPECT_EQ(f.stats().recordings, recordings);
}

// An output of another function is live all the time, so that each call continues the path of the
// last.
TEST_P(CopiedOutputsTest, OutputsAreCopiedNoLongerThanTheyAreHeldWhateverElseIsHeld) {
  CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 3, 0); });
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  const auto is_copied = [&] { return !manages(context(), f(random_tensor({9}))); };
  const std::vector<float> x = random_floats(5);
  keep(g(tensor({5}, x)), affine_of(x, 3, 0));
  for (int call = 0; call < 50; ++call)
    keep(f(random_tensor({9})), {});
  EXPECT_TRUE(is_copied());

  kept_.resize(1);

  EXPECT_FALSE(is_copied());
  EXPECT_FALSE(is_copied());
  expect_all_kept();
}

// Outputs of a dozen functions are held at different addresses.
TEST_P(CopiedOutputsTest, OutputsOfTheContextThatComeFromManyPlacesAreCopiedIn) {
  constexpr int kMakers = 12;
  std::vector<CompiledFunction<Tensor(Tensor)>> makers;
  for (int i = 0; i < kMakers; ++i)
    makers.push_back(compile(context(), "maker" + std::to_string(i),
                             [i](Tensor x) { return affine(x, static_cast<float>(i), 1); }));
  CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 2, 0); });
  std::vector<Tensor> held(kMakers);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < kMakers; ++i) {
      const std::vector<float> x = random_floats(7);
      held[i] = Tensor();
      held[i] = makers[i](tensor({7}, x));
      EXPECT_EQ(values(g(held[i])), affine_of(affine_of(x, static_cast<float>(i), 1), 2, 0));
    }
  }

  expect_replays(g, 20 * kMakers);
}

// Copies have their own memory, as outputs of eager calls do.
TEST_P(CopiedOutputsTest, CopiesOutliveMarkStepAsOutputsOfEagerCallsDo) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  for (int call = 0; call < 60; ++call) {
    const std::vector<float> x = random_floats(9);
    keep(f(tensor({9}, x)), affine_of(x, 2, 1));
  }
  context().mark_step();
  for (int call = 0; call < 60; ++call)
    (void)f(random_tensor({9}));

  int stale = 0;
  for (const Kept& one : kept_) {
    if (one.tensor.storage()->state() == Storage::State::kStale) {
      ++stale;
    } else {
      EXPECT_EQ(values(one.tensor), one.expected);
    }
  }
  EXPECT_LE(stale, static_cast<int>(kMostRecordings) + 1);
}

TEST_P(CopiedOutputsTest, CopiesAreVerified) {
  make_context({.extensions = {verify({.every = 2})}});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  for (int call = 0; call < 100; ++call) {
    const std::vector<float> x = random_floats(9);
    keep(f(tensor({9}, x)), affine_of(x, 2, 1));
  }

  expect_all_kept();
  EXPECT_GE(f.stats().verified, 40u);
  expect_replays(f, 100);
}

TEST_P(CopiedOutputsTest, AnOutputThatTheStepFunctionKeepsIsNotCopiedAndTheCallSaysSo) {
  const CapturedLog log;
  Tensor last;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    last = affine(x, 2, 1);
    return last;
  });
  for (int call = 0; call < kCalls; ++call) {
    const std::vector<float> x = random_floats(9);
    keep(f(tensor({9}, x)), affine_of(x, 2, 1));
  }

  expect_all_kept();
  EXPECT_LE(f.stats().recordings, kMostRecordings);
  EXPECT_GE(f.stats().skipped(SkipReason::kKeepsTensor), 200u);
  EXPECT_THAT(to_string(f.explain(random_tensor({9}))),
              HasSubstr("output 0 cannot be copied, because the step function keeps it"));
  last = Tensor();
}

// The graph of the capture that makes the table is launched, in any of the recordings.
TEST_P(CopiedOutputsTest, ATableThatIsMadeInACaptureAndReturnedIsFilled) {
  const CapturedLog log;
  for (int renewed = 1; renewed < 12; ++renewed) {
    Tensor table;
    bool is_due = true;
    CompiledFunction f = compile(context(), "f", [&](Tensor x) {
      if (!std::exchange(is_due, false)) return std::pair(add(x, table), affine(x, 0, 3));
      table = Tensor();
      table = affine(x, 0, 3);
      return std::pair(add(x, table), table);
    });
    for (int call = 0; call < 40; ++call) {
      is_due = is_due || call == renewed;
      const std::vector<float> x = random_floats(9);
      const auto [sum, made] = f(tensor({9}, x));
      keep(sum, affine_of(x, 1, 3));
      keep(made, affine_of(x, 0, 3));
    }
    expect_all_kept();
    kept_.clear();
    table = Tensor();
  }
}

// An eager run may evict recordings; a replay may not, since its call is in progress.
TEST_P(CopiedOutputsTest, WithoutMemoryForACopyTheCallRunsEagerlyAndRecordingsGiveWay) {
  const CapturedLog log;
  make_context({.max_bytes = 24 << 20, .at_limit = AtLimit::kEvict});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 1, 0); });
  const std::vector<float> x = random_floats(200'000);
  const Tensor input = tensor({200'000}, x);
  for (int call = 0; call < 10; ++call)
    keep(f(input), affine_of(x, 2, 1));
  const Tensor large = empty({1'000'000}, DType::kFloat32, device());
  for (int call = 0; call < 2; ++call)
    (void)g(large);
  try {
    for (int call = 0; call < 100; ++call)
      keep(f(input), affine_of(x, 2, 1));
    ADD_FAILURE() << "100 results of 800 KB have fitted in 24 MiB";
  } catch (const OutOfMemory&) {
  }

  EXPECT_GE(f.stats().skipped(SkipReason::kPoolLimit), 1u);
  EXPECT_GE(g.stats().evictions, 1u);
  expect_all_kept();
}

// A rank that replayed alone would wait for the others forever.
TEST_P(CopiedOutputsTest, WithoutMemoryForACopyOnOneRankNoneReplays) {
  const CapturedLog log;
  auto groups = make_thread_groups(2, std::chrono::milliseconds(20'000));
  std::vector<std::optional<CallOutcome>> outcomes[2];
  run_on_ranks(2, [&](int rank) {
    ContextOptions options;
    options.group = std::move(groups[static_cast<std::size_t>(rank)]);
    options.at_limit = AtLimit::kEvict;
    if (rank == 1) options.max_bytes = 24 << 20;
    Context on_rank(device_of_rank(device(), rank), options);
    const CompiledFunction f = compile(on_rank, "f", [](Tensor x) { return affine(x, 2, 1); });
    const Tensor x = from_host<float>({200'000}, std::vector<float>(200'000, 3), on_rank.device());
    std::vector<Tensor> held;
    for (int call = 0; call < 40; ++call) {
      try {
        held.push_back(f(x));
      } catch (const Error&) {
      }
      outcomes[rank].push_back(f.last_outcome());
    }
    for (const Tensor& y : held)
      EXPECT_EQ(y.to_vector<float>()[0], 7);
    EXPECT_GE(f.stats().replays, 5u);
    EXPECT_GE(f.stats().failures, 5u);
  });
  EXPECT_EQ(outcomes[0], outcomes[1]);
}

TEST_P(CopiedOutputsTest, ACallWithoutMemoryForACopyCountsItsSizeOnce) {
  const CapturedLog log;
  make_context({.max_bytes = 24 << 20});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); },
                               {.inputs = {{.dynamic = {{0, "n"}}}},
                                .buckets = {{"n", {200'000}}},
                                .outputs = {{.dynamic = {{0, "n"}}}}});
  const Tensor input = random_tensor({150'000});
  std::vector<Tensor> held;
  EXPECT_THROW(
      {
        for (int call = 0; call < 100; ++call)
          held.push_back(f(input));
      },
      OutOfMemory);

  EXPECT_GE(f.stats().skipped(SkipReason::kPoolLimit) + f.stats().failures, 2u);
  const auto snapshot = nlohmann::json::parse(snapshot_json(context()));
  EXPECT_EQ(snapshot["functions"][0]["axes"][0]["sizes"],
            nlohmann::json::parse("[[150000, " + std::to_string(held.size()) + "]]"));
}

TEST_P(CopiedOutputsTest, TheLogExplainAndTheSnapshotSayThatOutputsAreCopiedAndWhy) {
  const CapturedLog log;
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  for (const std::int64_t size : {8, 9}) {  // one log line for both sizes
    for (int call = 0; call < kCalls; ++call)
      keep(f(random_tensor({size})), {});
  }

  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("held_outputs function=f"),
                                             HasSubstr("copy their outputs"))));
  EXPECT_THAT(to_string(f.explain(random_tensor({9}))),
              AllOf(HasSubstr("its outputs are copied"), HasSubstr("output 0 of 'f'")));
  const auto snapshot = nlohmann::json::parse(snapshot_json(context()));
  EXPECT_EQ(snapshot["nodes"].back()["outputs"][0]["kind"], "copied");
}

}  // namespace
}  // namespace cgtree::testing
