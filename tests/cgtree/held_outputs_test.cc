// No output that is held is ever overwritten; mark_step() makes handles stale, and the error names
// the output.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "interop/exchange/dlpack_tensor.h"
#include "tests/support/captured_log.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class HeldOutputsTest : public TreeTest {
 protected:
  // Runs `act`, which must throw StaleTensor, and returns the message.
  template <typename Act>
  static std::string stale_message(Act&& act) {
    try {
      act();
    } catch (const StaleTensor& error) {
      return std::string(error.message());
    }
    return "nothing was thrown";
  }
};
CGTREE_ON_ALL_DEVICES(HeldOutputsTest);

TEST_P(HeldOutputsTest, OutputsOfEveryCallKeepTheirValuesWhileHeld) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  std::vector<Tensor> held;
  std::vector<std::vector<float>> expected;

  for (int call = 0; call < 12; ++call) {
    const std::vector<float> x = random_floats(100);
    held.push_back(f(tensor({100}, x)));
    expected.push_back(affine_of(x, 2, 1));
  }

  for (std::size_t i = 0; i < held.size(); ++i)
    EXPECT_EQ(values(held[i]), expected[i]) << i;
}

// y = f(x), with y held until the next call has returned: two recordings, double buffering (design
// 5.2).
TEST_P(HeldOutputsTest, AnOutputHeldUntilTheNextOneSettlesOnTwoRecordings) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  Tensor y;

  for (int call = 0; call < 30; ++call) {
    const std::vector<float> x = random_floats(10);
    y = f(tensor({10}, x));
    EXPECT_EQ(values(y), affine_of(x, 2, 1));
  }

  EXPECT_LE(f.stats().recordings, 2u);
  EXPECT_EQ(f.stats().skipped(), 0u);
}

// y = f(y): the output of one call is the input of the next.
TEST_P(HeldOutputsTest, AFunctionFedItsOwnOutputSettles) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 0.5f, 1); });
  std::vector<float> expected = random_floats(10);
  Tensor y = tensor({10}, expected);

  for (int call = 0; call < 30; ++call) {
    y = f(y);
    expected = affine_of(expected, 0.5f, 1);
    EXPECT_EQ(values(y), expected);
  }

  EXPECT_LE(f.stats().recordings, 3u);
  EXPECT_EQ(f.stats().skipped(), 0u);
}

// z = f(f(x)) and g(f(x)) work without an annotation by the user.
TEST_P(HeldOutputsTest, NestedCallsSettle) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, -1, 3); });
  Tensor z;
  Tensor w;

  for (int call = 0; call < 30; ++call) {
    const std::vector<float> x = random_floats(10);
    z = f(f(tensor({10}, x)));
    EXPECT_EQ(values(z), affine_of(affine_of(x, 2, 1), 2, 1));
    w = g(f(tensor({10}, x)));
    EXPECT_EQ(values(w), affine_of(affine_of(x, 2, 1), -1, 3));
    EXPECT_EQ(values(z), affine_of(affine_of(x, 2, 1), 2, 1));
  }

  EXPECT_LE(f.stats().recordings + g.stats().recordings, 12u);
  EXPECT_GE(f.stats().replays + g.stats().replays, 100u);
}

// A function whose state is fed back and whose other result is held.
TEST_P(HeldOutputsTest, AStateThatIsFedBackBesideAHeldResultSettles) {
  Context loops(context().device(), {.outputs_lie_apart = true});
  CompiledFunction f = compile(loops, "f", [](Tensor state, Tensor x) {
    return std::pair(affine(state, 0.5f, 1), affine(x, 2, 1));
  });
  CompiledFunction g = compile(loops, "g", [](Tensor x) { return affine(x, 3, 1); });
  std::vector<float> expected = random_floats(64);
  Tensor state = tensor({64}, expected);
  Tensor other = state;
  Tensor held;
  for (int call = 0; call < 40; ++call) {
    std::tie(state, held) = f(state, random_tensor({8}));
    expected = affine_of(expected, 0.5f, 1);
    EXPECT_EQ(values(state), expected);
    other = g(f(other, random_tensor({8})).first);
  }

  EXPECT_LE(f.stats().recordings, 8u);
  EXPECT_LE(g.stats().recordings, 4u);
}

// A training loop: the gradients of a step are held while the next forward pass runs, and fit into
// memory of outputs of the last forward pass that were released.
TEST_P(HeldOutputsTest, ALoopWithOutputsHeldDuringTheNextPassSettlesAfterOneMoreRecording) {
  Context loops(context().device(), {.outputs_lie_apart = true});
  constexpr std::int64_t kSaved = 3000;
  CompiledFunction forward = compile(loops, "forward", [](Tensor x) {
    return std::tuple(affine(x, 2, 0), affine(x.slice(0, 0, kSaved), 3, 1), affine(x, 4, 2));
  });
  CompiledFunction backward = compile(loops, "backward", [](Tensor saved, Tensor more) {
    return std::pair(affine(saved, 5, 0), affine(more.slice(0, 0, 100), 6, 1));
  });
  std::pair<Tensor, Tensor> gradients;
  for (int step = 0; step < 12; ++step) {
    const std::vector<float> x = random_floats(5000);
    auto [logits, saved, more] = forward(tensor({5000}, x));
    EXPECT_EQ(values(logits), affine_of(x, 2, 0));
    logits = Tensor();
    gradients = {};
    gradients = backward(saved, more);
    const std::vector<float> front(x.begin(), x.begin() + kSaved);
    EXPECT_EQ(values(gradients.first), affine_of(affine_of(front, 3, 1), 5, 0));
  }

  EXPECT_LE(forward.stats().recordings, 2u);
  EXPECT_LE(backward.stats().recordings, 2u);
  EXPECT_EQ(forward.stats().replays, 12 - 1 - forward.stats().recordings);
}

// A decoder: its cache, and a value computed from its other result, are held until the next ones
// exist.
TEST_P(HeldOutputsTest, AFunctionWhoseResultsAreHeldInPartSettles) {
  Context loops(context().device(), {.outputs_lie_apart = true});
  CompiledFunction decode = compile(loops, "decode", [](Tensor x) {
    return std::tuple(affine(x, 1, 1), affine(x.slice(0, 0, 1200), 2, 2), affine(x, 3, 3));
  });
  CompiledFunction head = compile(
      context(), "head", [](Tensor hidden) { return affine(hidden.slice(0, 0, 1000), 4, 4); });
  std::vector<Tensor> held;
  for (int call = 0; call < 16; ++call) {
    auto [keys, hidden, cached] = decode(random_tensor({1536}));
    Tensor logits = head(hidden);
    held = {keys, cached, logits};
  }

  EXPECT_LE(decode.stats().recordings, 2u);
  EXPECT_LE(head.stats().recordings, 2u);
}

// A chain of functions whose last result is held until the next one exists.
TEST_P(HeldOutputsTest, AChainWhoseLastResultIsHeldSettles) {
  Context loops(context().device(), {.outputs_lie_apart = true});
  std::vector<CompiledFunction<Tensor(Tensor)>> chain;
  for (const std::int64_t size : {4000, 1000, 800, 700}) {
    const auto step = [size](Tensor x) { return affine(x.slice(0, 0, size), 2, 1); };
    chain.push_back(compile(loops, fmt::format("first {}", size), step));
  }
  Tensor held;
  for (int call = 0; call < 16; ++call) {
    Tensor y = random_tensor({5000});
    for (auto& step : chain)
      y = step(y);
    held = y;
  }

  for (auto& step : chain)
    EXPECT_LE(step.stats().recordings, 2u);
}

// Rows 65, 66 error_on_dealloc_use: for outputs of a warm-up, of a recording and of a replay.
// Acceptance: trees 65, 66, 67; random dead_forward.
TEST_P(HeldOutputsTest, AfterMarkStepAHandleNamesFunctionOutputAndGeneration) {
  CompiledFunction f = compile(
      context(), "decode", [](Tensor x) { return std::pair(affine(x, 1, 0), affine(x, 2, 0)); });

  for (int generation = 0; generation < 4; ++generation) {
    const auto [first, second] = f(random_tensor({3}));
    const Tensor view = second.slice(0, 1, 2);
    context().mark_step();

    for (const Tensor& stale : {second, view}) {
      const std::string message = stale_message([&] { (void)stale.data(); });
      EXPECT_THAT(message, HasSubstr("output 1 of 'decode'"));
      EXPECT_THAT(message, HasSubstr(fmt::format("made in generation {}", generation)));
    }
    EXPECT_THROW((void)first.to_vector<float>(), StaleTensor);
  }
}

// A view in another library cannot throw StaleTensor.
TEST_P(HeldOutputsTest, TensorsHeldByAnotherLibraryKeepTheirValuesAcrossMarkStep) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  std::vector<std::pair<Tensor, std::vector<float>>> views;
  std::vector<Tensor> stale;

  for (int call = 0; call < 60; ++call) {
    const std::vector<float> x = random_floats(10);
    const Tensor y = f(tensor({10}, x));
    EXPECT_EQ(values(y), affine_of(x, 2, 1));
    if (random_() % 2 == 0) {
      views.emplace_back(from_dlpack(to_dlpack(y).release()), affine_of(x, 2, 1));
    } else {
      stale.push_back(y);
    }
    if (views.size() > 4) views.erase(views.begin() + static_cast<std::ptrdiff_t>(random_() % 4));
    context().mark_step();
    for (const auto& [view, expected] : views)
      ASSERT_EQ(values(view), expected) << call;
    for (const Tensor& ended : stale)
      EXPECT_THROW((void)ended.data(), StaleTensor);
    validate();
  }

  EXPECT_EQ(stats().live_outputs, views.size());
  views.clear();
  EXPECT_EQ(stats().live_outputs, 0u);
}

TEST_P(HeldOutputsTest, TensorsReturnedByAnotherLibraryEndWithTheStep) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  Tensor y;

  for (int step = 0; step < 20; ++step) {
    context().mark_step();
    if (step > 0) {
      EXPECT_THROW((void)y.data(), StaleTensor);
    }
    y = f(random_tensor({4}));
    EXPECT_EQ(values(from_dlpack(to_dlpack(y).release())), values(y));
  }

  EXPECT_EQ(f.stats().recordings, 1u);
}

TEST_P(HeldOutputsTest, AStaleInputIsRefusedBeforeAnythingRuns) {
  int runs = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    ++runs;
    return affine(x, 1, 0);
  });
  const Tensor stale = f(random_tensor({3}));
  context().mark_step();

  EXPECT_THROW((void)f(stale), StaleTensor);
  EXPECT_EQ(runs, 1);
}

// Acceptance: random dead_forward.
TEST_P(HeldOutputsTest, AStaleHandleDoesNotKeepItsSlotFromLaterOutputs) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 1, 5); });
  Tensor y;

  for (int step = 0; step < 20; ++step) {
    context().mark_step();  // y of the last step becomes stale, and is still held
    const std::vector<float> x = random_floats(4);
    y = f(tensor({4}, x));
    EXPECT_EQ(values(y), affine_of(x, 1, 5));
  }

  EXPECT_EQ(f.stats().recordings, 1u);
}

// Row 55 persisted_output_liveness: 0 without a handle, 1 while one is held; a view keeps it at 1;
// 0 after both.
// Acceptance: trees 35, 55; checkpoints assigning_back_deleter_fns_to_tensor.
TEST_P(HeldOutputsTest, LivenessIsExactThroughViewsAndInEveryPhase) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 1, 0); });

  for (int call = 0; call < 4; ++call) {
    EXPECT_EQ(stats().live_outputs, 0u);
    Tensor y = f(random_tensor({4}));
    EXPECT_EQ(stats().live_outputs, 1u);
    Tensor view = y.slice(0, 1, 3);
    y = Tensor();
    EXPECT_EQ(stats().live_outputs, 1u);
    view = Tensor();
    EXPECT_EQ(stats().live_outputs, 0u);
  }
}

// Row 35 live_outputs_multiple_graphs: the pool is not restored before the path diverges.
// Acceptance: trees 35.
TEST_P(HeldOutputsTest, APathRecordedInOneGoNeedsNoRestore) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 1, 1); });
  CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction h = compile(context(), "h", [](Tensor x) { return affine(x, 3, 0); });
  for (int call = 0; call < 2; ++call)
    (void)g(f(random_tensor({4})));
  EXPECT_EQ(stats().restores, 0u);

  (void)g(f(random_tensor({4})));  // replays
  EXPECT_EQ(stats().restores, 0u);
  (void)h(f(random_tensor({4})));  // diverges: warm-up
  (void)h(f(random_tensor({4})));  // and recording
  EXPECT_EQ(stats().restores, 2u);
}

// Row 59 cleanup, better than PyTorch's: the memory outlives everything but its last handle.
// Acceptance: trees 59.
TEST_P(HeldOutputsTest, OutputsOutliveTheFunctionAndTheContext) {
  const std::vector<float> x = random_floats(50);
  std::vector<Tensor> held;
  {
    CompiledFunction f = compile(context(), "f", [](Tensor t) { return affine(t, 2, 1); });
    for (int call = 0; call < 4; ++call)
      held.push_back(f(tensor({50}, x)));
  }
  const std::weak_ptr<Engine> watch = engine();
  context_.reset();

  EXPECT_TRUE(watch.expired());
  for (const Tensor& y : held)
    EXPECT_EQ(values(y), affine_of(x, 2, 1));
  EXPECT_GT(segments_->held(), 0);
  held.clear();
  EXPECT_EQ(segments_->held(), 0);
}

TEST_P(HeldOutputsTest, HandlesMayDieOnAnyThread) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  const auto run_round = [&](bool joins_first) {
    const std::vector<float> x = random_floats(20);
    Tensor y = f(tensor({20}, x));
    const Tensor kept = f(tensor({20}, affine_of(x, 0, 7)));
    std::thread other(
        [y = std::move(y), &x] { EXPECT_EQ(y.to_vector<float>(), affine_of(x, 2, 1)); });
    if (joins_first) other.join();
    const Tensor again = f(tensor({20}, affine_of(x, 1, 1)));
    if (!joins_first) other.join();
    EXPECT_EQ(values(kept), affine_of(affine_of(x, 0, 7), 2, 1));
    EXPECT_EQ(values(again), affine_of(affine_of(x, 1, 1), 2, 1));
  };
  // Each handle that is released between the decision to record and the recording costs one more
  // recording.
  for (int round = 0; round < 50; ++round)
    run_round(/*joins_first=*/false);
  const std::uint64_t recordings = f.stats().recordings;
  for (int round = 0; round < 50; ++round)
    run_round(/*joins_first=*/true);
  EXPECT_LE(f.stats().recordings, recordings + 2) << "at most two outputs are held at a time";
}

// Two functions share a slot. The last handle of an output, which may be a view, leaves its shape
// in the slot.
TEST_P(HeldOutputsTest, AnOutputHasItsOwnShapeWhateverWasInItsPlaceBefore) {
  CompiledFunction flat = compile(context(), "flat", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction square = compile(context(), "square", [](Tensor x) {
    return affine(x, 3, 0).reshape({2, 2});
  });
  const auto let_go = [&](Tensor y) {
    const std::uintptr_t address = y.address();
    if (random_() % 2 == 0) return address;
    const Tensor view = y.slice(0, 0, 1);
    y = Tensor();
    return address;
  };
  for (int call = 0; call < 40; ++call) {
    const std::vector<float> x = random_floats(4);
    Tensor y = flat(tensor({4}, x));
    EXPECT_EQ(y.shape(), Shape({4}));
    EXPECT_EQ(values(y), affine_of(x, 2, 0));
    const std::uintptr_t before = let_go(std::move(y));
    Tensor z = square(tensor({4}, x));
    EXPECT_EQ(z.shape(), Shape({2, 2}));
    EXPECT_EQ(values(z), affine_of(x, 3, 0));
    if (call > 2) {
      EXPECT_EQ(z.address(), before) << "they share no slot";
    }
    (void)let_go(std::move(z));
  }
}

// Other threads release last handles while the context replays, records and marks steps, and after
// its end. Held outputs are never overwritten, and each slot's life ends once.
TEST_P(HeldOutputsTest, ReleasesOnOtherThreadsRaceWithAllThatTheContextDoes) {
  constexpr int kThreads = 2;
  constexpr int kOutputs = 3;
  std::array<std::atomic<std::vector<Tensor>*>, kThreads> given{};
  std::atomic<bool> ends = false;
  std::vector<std::thread> threads;
  for (auto& mine : given) {
    threads.emplace_back([&] {
      while (!ends)
        delete mine.exchange(nullptr);
    });
  }
  const auto step = [](Tensor x) {
    std::vector<Tensor> outputs;
    for (int i = 0; i < kOutputs; ++i)
      outputs.push_back(affine(x, 2, static_cast<float>(i)));
    return outputs;
  };
  std::vector<CompiledFunction<std::vector<Tensor>(Tensor)>> functions;
  for (int call = 0; call < 600; ++call) {
    if (call % 60 == 0) functions.push_back(compile(context(), "f", step));
    const std::vector<float> x = random_floats(10);
    std::vector<Tensor> outputs = functions[random_() % functions.size()](tensor({10}, x));
    const std::vector<Tensor> held(outputs.begin(), outputs.begin() + random_() % kOutputs);
    auto gift = std::make_unique<std::vector<Tensor>>(std::move(outputs));
    std::vector<Tensor>* nothing = nullptr;
    if (given[random_() % kThreads].compare_exchange_strong(nothing, gift.get())) {
      (void)gift.release();
    } else {
      gift.reset();
    }
    (void)functions.back()(tensor({10}, random_floats(10)));
    for (std::size_t i = 0; i < held.size(); ++i)
      ASSERT_EQ(values(held[i]), affine_of(x, 2, static_cast<float>(i)));
    if (random_() % 4 == 0) context().mark_step();
    if (call % 100 == 0) validate();
  }
  auto last = std::make_unique<std::vector<Tensor>>(functions[0](tensor({10}, random_floats(10))));
  std::vector<Tensor>* nothing = nullptr;
  while (!given[0].compare_exchange_strong(nothing, last.get()))
    nothing = nullptr;
  (void)last.release();
  functions.clear();
  context_.reset();
  while (given[0] != nullptr || given[1] != nullptr)
    std::this_thread::yield();
  ends = true;
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(segments_->held(), 0);
}

TEST_P(HeldOutputsTest, AnOutputThatOutlivesItsContextKeepsOnlyWhatItLiesIn) {
  constexpr std::int64_t kLarge = 4 << 20;
  Tensor held;
  {
    CompiledFunction f =
        compile(context(), "f", [](Tensor x) { return affine(affine(x, 2, 0), 1, 1); });
    CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 2, 1); });
    const Tensor large = empty({kLarge}, DType::kFloat32, device());
    for (int call = 0; call < 3; ++call)
      (void)f(large);
    for (int call = 0; call < 3; ++call)
      held = g(tensor({4}, std::vector<float>{1, 2, 3, 4}));
    context().synchronize();
  }
  EXPECT_GT(segments_->held(), 1);
  context_.reset();

  EXPECT_EQ(segments_->held(), 1);
  EXPECT_EQ(values(held), (std::vector<float>{3, 5, 7, 9}));
  held = Tensor();
  EXPECT_EQ(segments_->held(), 0);
}

// The exception is enough: nothing is logged for a caller that catches it.
TEST_P(HeldOutputsTest, AStaleInputThatTheCallerCatchesIsNotLogged) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 1, 0); });
  const Tensor stale = f(random_tensor({3}));
  context().mark_step();
  const CapturedLog log;
  EXPECT_THROW((void)f(stale), StaleTensor);
  EXPECT_EQ(f.stats().failures, 1u);
  EXPECT_EQ(log.lines(), std::vector<std::string>());
}

}  // namespace
}  // namespace cgtree::testing
