// Steps: the work between begin() and end() has the same effect as without cgtree, with each
// outcome.
#include "cgtree/steps.h"
#include "interop/device/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "cgtree/values/eager_break.h"
#include "cgtree/values/graph_scope.h"
#include "extensions/watch/monitor.h"
#include "interop/device/device_api.h"
#include "interop/device/kernel.h"
#include "simulator/host_device.h"
#include "simulator/strict_memory.h"
#include "tests/support/host_slot.h"
#include "tests/support/test_kernels.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// An engine with its own memory and the step: cache += draft * tokens + weights.
class StepsTest : public TreeTest {
 protected:
  static constexpr std::int64_t kCount = 64;

  void SetUp() override {
    TreeTest::SetUp();
    if (IsSkipped()) return;
    weights_ = random_numbers();
    weights_on_device_ = tensor({kCount}, weights_);
    cache_ = random_numbers();
    cache_on_device_ = tensor({kCount}, cache_);
    for (Tensor& tokens : tokens_)
      tokens = tensor({kCount}, std::vector<float>(kCount, NAN));
  }
  void TearDown() override {
    weights_on_device_ = cache_on_device_ = Tensor();
    for (Tensor& tokens : tokens_)
      tokens = Tensor();
    TreeTest::TearDown();
  }

  // Small integers, so that all sums are exact.
  std::vector<float> random_numbers() {
    std::vector<float> numbers(kCount);
    for (float& number : numbers)
      number = static_cast<float>(random_() % 64);
    return numbers;
  }

  Steps make_steps(StepsOptions options = {}) {
    options.bindings = {{.name = "tokens", .is_copied = true},
                        {.name = "cache", .is_mutated = true},
                        {.name = "weights"}};
    return Steps(context(), "decode", std::move(options));
  }
  static Binding binding_of(const Tensor& tensor) {
    return {reinterpret_cast<const void*>(tensor.address()), tensor.bytes()};
  }
  std::vector<Binding> bindings(std::size_t place = 0) const {
    return {binding_of(tokens_[place]), binding_of(cache_on_device_),
            binding_of(weights_on_device_)};
  }

  static void axpy(StreamRef stream, float a, const void* x, void* y) {
    check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(kCount),
                                        arguments_of(a, x, y, kCount)),
          "launch axpy");
  }
  void forward(StreamRef stream, float draft, const void* tokens) {
    axpy(stream, draft, tokens, reinterpret_cast<void*>(cache_on_device_.address()));
    axpy(stream, 1, reinterpret_cast<void*>(weights_on_device_.address()),
         reinterpret_cast<void*>(cache_on_device_.address()));
  }

  // Applies the step to the expected cache.
  void expect_step(float draft, const std::vector<float>& tokens) {
    for (std::size_t i = 0; i < cache_.size(); ++i)
      cache_[i] += draft * tokens[i] + weights_[i];
  }
  void expect_cache() {
    context().synchronize();
    EXPECT_EQ(cache_on_device_.to_vector<float>(), cache_);
  }
  // Writes new random tokens to a place.
  std::vector<float> new_tokens(std::size_t place = 0) {
    std::vector<float> tokens = random_numbers();
    tokens_[place].copy_from<float>(tokens);
    return tokens;
  }

  // Makes a call and checks the number of runs and the cache. Returns the outcome.
  Outcome call(Steps& steps, int draft, std::size_t place = 0) {
    const std::vector<float> tokens = new_tokens(place);
    Step step = steps.begin({{"draft", draft}}, bindings(place));
    int runs = 0;
    for (; step.must_run(); step.end()) {
      forward(current_stream(), static_cast<float>(draft), step.address(0));
      ++runs;
    }
    EXPECT_EQ(runs == 0, step.replayed());
    expect_step(static_cast<float>(draft), tokens);
    expect_cache();
    return step.outcome();
  }

  std::vector<float> weights_, cache_;
  Tensor weights_on_device_, cache_on_device_;
  std::array<Tensor, 3> tokens_;
};
CGTREE_ON_ALL_DEVICES(StepsTest);

TEST_P(StepsTest, TheThirdCallReplaysWithTokensFromWhereverTheyAre) {
  Steps steps = make_steps();
  EXPECT_EQ(call(steps, 2), Outcome::kWarmUp);
  EXPECT_EQ(call(steps, 2), Outcome::kRecord);
  for (const std::size_t place : {0, 1, 2, 1})
    EXPECT_EQ(call(steps, 2, place), Outcome::kReplay);
  EXPECT_EQ(steps.stats().calls, 6u);
  EXPECT_EQ(steps.stats().replays, 4u);
}

TEST_P(StepsTest, CallsWithOtherKeysNeverShareARecording) {
  Steps steps = make_steps();
  for (int round = 0; round < 4; ++round) {
    for (const int draft : {0, 1, 2})
      EXPECT_EQ(call(steps, draft), round == 0   ? Outcome::kWarmUp
                                    : round == 1 ? Outcome::kRecord
                                                 : Outcome::kReplay);
  }
  EXPECT_EQ(steps.stats().kept_recordings, 3u);
  const Explanation why = steps.explain({{"draft", 7}}, bindings());
  EXPECT_EQ(why.outcome, Outcome::kWarmUp);
  EXPECT_THAT(snapshot_json(context()), HasSubstr("[draft=2] uint8 {256}"));
}

// Random calls of an engine: the work reads the rounded value from the key.
TEST_P(StepsTest, IntegersOfTheKeyAreRoundedUpAndTheWorkSeesTheRoundedOnes) {
  Steps steps =
      make_steps({.keys = {{.name = "draft", .policy = AxisPolicy::kPowersOfTwo, .largest = 4}}});
  int above = 0;
  for (int i = 0; i < 100; ++i) {
    const auto draft = static_cast<int>(random_() % 7);
    above += draft > 4;
    const std::size_t place = random_() % tokens_.size();
    const std::vector<float> tokens = new_tokens(place);
    const Key key{{"layer", static_cast<int>(random_() % 2)}, {"draft", draft}};
    for (Step step = steps.begin(key, bindings(place)); step.must_run(); step.end()) {
      EXPECT_EQ(current_key().number("layer"), key.number("layer"));
      forward(current_stream(), static_cast<float>(current_key().number("draft")), step.address(0));
    }
    expect_step(static_cast<float>(draft > 4    ? draft
                                   : draft <= 1 ? 1
                                   : draft == 2 ? 2
                                                : 4),
                tokens);
    expect_cache();
  }
  const FunctionStats stats = steps.stats();
  EXPECT_LE(stats.kept_recordings, 6u);
  EXPECT_EQ(stats.skips[static_cast<int>(SkipReason::kAboveLargestBucket)],
            static_cast<std::uint64_t>(above));
  EXPECT_EQ(stats.replays + stats.recordings + stats.warm_ups + above, 100u);
  EXPECT_THROW((void)steps.begin({{"layer", 1}}, bindings()), InvalidArgument);
  EXPECT_THROW((void)current_key(), InvalidArgument);
}

TEST_P(StepsTest, AnotherAddressOfACheckedBindingGetsARecordingOfItsOwn) {
  Steps steps = make_steps();
  for (int i = 0; i < 3; ++i)
    call(steps, 1);
  const Tensor old = std::exchange(weights_on_device_, tensor({kCount}, weights_));

  const Explanation why = steps.explain({{"draft", 1}}, bindings());
  ASSERT_EQ(why.mismatches.size(), 1u);
  EXPECT_THAT(to_string(why.mismatches[0]), HasSubstr("static input 2 'weights'"));
  EXPECT_EQ(call(steps, 1), Outcome::kRecord);
  EXPECT_EQ(call(steps, 1), Outcome::kReplay);
  weights_on_device_ = old;
  EXPECT_EQ(call(steps, 1), Outcome::kReplay);
}

TEST_P(StepsTest, UnderNoGraphStepsOfKnownKeysRunEagerly) {
  Steps steps = make_steps();
  for (int round = 0; round < 4; ++round) {
    for (const int draft : {1, 2, 3})
      call(steps, draft);
  }
  const std::uint64_t replays = steps.stats().replays;
  {
    const NoGraph no_graph;
    for (const int draft : {3, 1, 2, 2})
      EXPECT_EQ(call(steps, draft), Outcome::kRunEagerly);
  }
  EXPECT_EQ(steps.stats().replays, replays);
  EXPECT_EQ(call(steps, 1), Outcome::kReplay);
}

TEST_P(StepsTest, ABindingThatShrinksWhereItIsMakesAnotherCall) {
  Steps steps = make_steps();
  for (int i = 0; i < 3; ++i)
    call(steps, 1);
  std::vector<Binding> shorter = bindings();
  shorter[0].bytes /= 2;

  EXPECT_EQ(steps.explain({{"draft", 1}}, shorter).outcome, Outcome::kWarmUp);
  EXPECT_EQ(steps.explain({{"draft", 1}}, bindings()).outcome, Outcome::kReplay);
}

TEST_P(StepsTest, CopiesThatTheWorkWritesAreCopiedBack) {
  Steps steps(context(), "count", {.bindings = {{.is_copied = true, .is_mutated = true}}});
  for (int i = 0; i < 5; ++i) {
    const std::size_t place = i % tokens_.size();
    const std::vector<float> tokens = new_tokens(place);
    const Binding bound[] = {binding_of(tokens_[place])};
    for (Step step = steps.begin({}, bound); step.must_run(); step.end())
      axpy(current_stream(), 1, reinterpret_cast<void*>(weights_on_device_.address()),
           step.address(0));
    context().synchronize();
    std::vector<float> expected = tokens;
    for (std::size_t k = 0; k < expected.size(); ++k)
      expected[k] += weights_[k];
    EXPECT_EQ(tokens_[place].to_vector<float>(), expected);
  }
  EXPECT_EQ(steps.stats().replays, 3u);
}

// In each phase: by an exception, and by leaving the loop.
TEST_P(StepsTest, AStepThatIsLeftLeavesNoTrace) {
  Steps steps = make_steps();
  for (int calls = 0; calls < 2; ++calls) {
    const auto leave = [&](bool throws) {
      new_tokens();
      for (Step step = steps.begin({{"draft", 3}}, bindings()); step.must_run(); step.end()) {
        EXPECT_EQ(step.is_captured(), calls == 1);
        if (throws) throw std::runtime_error("the engine's own");
        break;
      }
    };
    EXPECT_THROW(leave(true), std::runtime_error);
    leave(false);
    EXPECT_FALSE(StreamRef(context().stream()).is_capturing());
    validate();
    expect_cache();
    EXPECT_EQ(call(steps, 3), calls == 0 ? Outcome::kWarmUp : Outcome::kRecord);
  }
  EXPECT_EQ(call(steps, 3), Outcome::kReplay);
  EXPECT_EQ(steps.stats().failures, 4u);
}

TEST_P(StepsTest, WorkThatCannotBeCapturedIsEnqueuedOnceMoreAndRunsOnce) {
  Steps steps = make_steps();
  const auto call_that_synchronises = [&] {
    const std::vector<float> tokens = new_tokens();
    int runs = 0;
    for (Step step = steps.begin({{"draft", 1}}, bindings()); step.must_run(); step.end()) {
      const StreamRef stream = current_stream();
      ++runs;
      if (ok(stream.api().synchronize_stream(stream.handle()))) forward(stream, 1, step.address(0));
    }
    expect_step(1, tokens);
    expect_cache();
    return runs;
  };
  EXPECT_EQ(call_that_synchronises(), 1);  // warm-up
  EXPECT_EQ(call_that_synchronises(), 2);  // a failed capture, and an eager run
  EXPECT_EQ(call_that_synchronises(), 1);
  EXPECT_EQ(steps.stats().skipped(SkipReason::kCaptureFailed), 2u);
  EXPECT_EQ(steps.stats().kept_recordings, 0u);
}

TEST_P(StepsTest, WorkThatThrowsBecauseItsCaptureIsBrokenThrowsOnce) {
  Steps steps = make_steps();
  const auto call_that_checks = [&] {
    const std::vector<float> tokens = new_tokens();
    for (Step step = steps.begin({{"draft", 1}}, bindings()); step.must_run(); step.end()) {
      const StreamRef stream = current_stream();
      check(stream.api().synchronize_stream(stream.handle()), "synchronise");
      forward(stream, 1, step.address(0));
    }
    expect_step(1, tokens);
  };
  call_that_checks();
  EXPECT_THROW(call_that_checks(), DeviceError);
  call_that_checks();
  expect_cache();
  EXPECT_EQ(steps.stats().skipped(SkipReason::kCaptureFailed), 1u);
}

TEST_P(StepsTest, ACaptureThatFailsIsAnErrorWhereAGraphIsRequired) {
  Steps steps = make_steps({.require_graph = true});
  call(steps, 1);
  new_tokens();
  Step step = steps.begin({{"draft", 1}}, bindings());
  ASSERT_TRUE(step.is_captured());
  (void)current_stream().api().synchronize_stream(current_stream().handle());
  EXPECT_THROW(step.end(), CaptureError);
  EXPECT_FALSE(step.must_run());
  EXPECT_EQ(steps.stats().failures, 1u);
  expect_cache();
}

TEST_P(StepsTest, WorkWhoseCopiesDoNotFitRunsEagerly) {
  make_context({.max_bytes = 1 << 20});
  Steps steps(context(), "large", {.bindings = {{.is_copied = true}}});
  const Tensor large = tensor({1 << 20}, std::vector<float>(1 << 20));
  const Binding bound[] = {binding_of(large)};
  for (Step step = steps.begin({}, bound); step.must_run(); step.end())
    EXPECT_EQ(step.outcome(), Outcome::kWarmUp);
  for (int i = 0; i < 4; ++i) {
    Step step = steps.begin({}, bound);
    ASSERT_TRUE(step.must_run());
    EXPECT_FALSE(step.is_captured());
    EXPECT_EQ(step.address(0), bound[0].address);
    step.end();
  }
  EXPECT_EQ(steps.stats().failures, 0u);
  EXPECT_EQ(steps.stats().skipped(SkipReason::kPoolLimit), 4u);
  validate();
}

TEST_P(StepsTest, WorkGoesToTheStreamOfTheCaller) {
  Steps steps = make_steps();
  const Stream own(device(), StreamKind::kNonBlocking);
  for (int i = 0; i < 5; ++i) {
    const std::vector<float> tokens = random_numbers();
    tokens_[0].copy_from_host(tokens.data(), tokens_[0].bytes(), own);
    for (Step step = steps.begin({{"draft", 2}}, bindings(), own); step.must_run(); step.end()) {
      EXPECT_EQ(current_stream(), own.ref());
      forward(own, 2, step.address(0));
    }
    EXPECT_NE(current_stream_or_none(), own.ref());
    expect_step(2, tokens);
    own.ref().synchronize();
    EXPECT_EQ(cache_on_device_.to_vector<float>(), cache_);
  }
  EXPECT_EQ(steps.stats().replays, 3u);
}

// The context cannot work on that stream, and its capture would not include the engine's work:
// replays would do nothing.
TEST_P(StepsTest, AStreamThatIsNotTheSameOnEachThreadIsRefused) {
  Steps steps = make_steps();
  const StreamRef own(device(), StreamHandle::kPerThread);
  for (int i = 0; i < 3; ++i)
    EXPECT_THROW((void)steps.begin({{"draft", 1}}, bindings(), own), InvalidArgument);
  (void)call(steps, 1);
  EXPECT_EQ(steps.stats().failures, 3u);
  EXPECT_EQ(steps.stats().warm_ups, 1u);
}

TEST_P(StepsTest, WhatIsInvalidatedIsNotReplayed) {
  Steps steps = make_steps();
  for (int i = 0; i < 3; ++i) {
    call(steps, 1);
    call(steps, 2);
  }
  const auto* const weights = static_cast<const std::byte*>(bindings()[2].address);
  const std::size_t bytes = bindings()[2].bytes;
  EXPECT_EQ(steps.invalidate(weights + bytes, 64), 0u);
  EXPECT_EQ(steps.invalidate(weights + bytes - 1, 1), 2u);
  EXPECT_EQ(call(steps, 1), Outcome::kRecord);
  EXPECT_EQ(call(steps, 1), Outcome::kReplay);
  // The addresses of copied bindings do not matter.
  EXPECT_EQ(steps.invalidate(bindings()[0].address, bytes), 0u);
}

TEST_P(StepsTest, ACompiledFunctionInsideAStepIsPartOfIt) {
  Steps steps = make_steps();
  CompiledFunction f = compile(context(), "f", [](Tensor x) { update(x, 2, 0); });
  for (int i = 0; i < 4; ++i) {
    for (Step step = steps.begin({}, bindings()); step.must_run(); step.end())
      f(cache_on_device_);
    for (float& value : cache_)
      value *= 2;
    expect_cache();
  }
  EXPECT_EQ(steps.stats().replays, 2u);
  EXPECT_EQ(f.stats().skipped(SkipReason::kNestedCall), 2u);
}

TEST_P(StepsTest, AStepOnACapturingStreamBecomesPartOfTheCallersGraph) {
  Steps steps = make_steps();
  const Stream own(device(), StreamKind::kNonBlocking);
  const std::vector<float> tokens = new_tokens();
  Capture capture(own, CaptureMode::kThreadLocal);
  for (Step step = steps.begin({{"draft", 1}}, bindings(), own); step.must_run(); step.end()) {
    EXPECT_EQ(step.outcome(), Outcome::kRunEagerly);
    forward(own, 1, step.address(0));
  }
  Graph graph;
  ASSERT_TRUE(ok(capture.end(&graph)));
  EXPECT_EQ(graph.node_count(), 2u);
  expect_cache();
  EXPECT_EQ(steps.stats().skipped(SkipReason::kForeignCapture), 1u);
}

TEST_P(StepsTest, MisuseIsNamedAndChangesNothing) {
  Steps steps = make_steps();
  call(steps, 1);
  call(steps, 1);
  Steps other(context(), "other");
  {
    Step step = steps.begin({{"draft", 4}}, bindings());
    ASSERT_TRUE(step.must_run());
    EXPECT_THAT([&] { (void)other.begin({}, {}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("while a step is open")));
    EXPECT_THROW(steps.invalidate(nullptr, 1), ConcurrentUse);
    EXPECT_THROW(step.address(3), InvalidArgument);
    std::thread([&] {
      EXPECT_THAT([&] { step.end(); },
                  ThrowsMessage<InvalidArgument>(HasSubstr("on another thread")));
    }).join();
    step.end();
    EXPECT_THAT([&] { step.end(); }, ThrowsMessage<InvalidArgument>(HasSubstr("nothing to end")));
    EXPECT_THROW(step.address(0), InvalidArgument);
    EXPECT_THROW(step.refuse("late"), InvalidArgument);
  }
  std::vector<Binding> endless = bindings();
  endless[0].bytes = SIZE_MAX;
  EXPECT_THAT(
      [&] {
        (void)steps.begin({{"draft", 1}}, endless);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("end behind the last address")));
  std::vector<Binding> null = bindings();
  null[1].address = nullptr;
  EXPECT_THAT(
      [&] {
        (void)steps.begin({{"draft", 1}}, null);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("binding 1 'cache' of 'decode' is null")));
  std::vector<Binding> on_host = bindings();
  const std::vector<std::byte> bytes(on_host[2].bytes);
  on_host[2].address = bytes.data();
  EXPECT_THAT(
      [&] {
        (void)steps.begin({{"draft", 1}}, on_host);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("binding 2 'weights'")));
  EXPECT_THROW(make_steps({.on_static_change = OnStaticChange::kDemote}), InvalidArgument);
  expect_cache();
  EXPECT_EQ(call(steps, 1), Outcome::kReplay);
}

TEST_P(StepsTest, BindingsThatACopyWouldTearApartAreRefused) {
  Steps steps = make_steps();
  for (int i = 0; i < 3; ++i)
    call(steps, 1);
  std::vector<Binding> overlapping = bindings();
  overlapping[0].address = static_cast<const std::byte*>(overlapping[1].address) + 64;
  overlapping[0].bytes = 64;
  EXPECT_THAT(
      [&] {
        (void)steps.begin({{"draft", 1}}, overlapping);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("binding 0 'tokens' (copied, 64 bytes at")));
  EXPECT_THROW((void)steps.explain({{"draft", 1}}, overlapping), InvalidArgument);
  overlapping[0] = overlapping[2];  // read twice
  EXPECT_EQ(steps.explain({{"draft", 1}}, overlapping).outcome, Outcome::kReplay);
  expect_cache();
  EXPECT_EQ(call(steps, 1), Outcome::kReplay);
}

TEST_P(StepsTest, AStepBlockOfAnotherVersionIsRefused) {
  struct Lengths {
    std::int64_t context = 0;
  };
  Steps steps(context(), "decode",
              {.bindings = {{.name = "lengths", .host_bytes = sizeof(Lengths)}}});
  const Lengths lengths;
  const auto begin = [&](const void* address, std::size_t bytes) {
    const Binding block[] = {{address, bytes}};
    return [&steps, block] { (void)steps.begin({}, block); };
  };
  EXPECT_THAT(begin(&lengths, 16),
              ThrowsMessage<InvalidArgument>(HasSubstr("binding 0 'lengths' of 'decode' is a step "
                                                       "block of 16 bytes, and was declared "
                                                       "with 8")));
  EXPECT_THAT(begin(nullptr, 8), ThrowsMessage<InvalidArgument>(HasSubstr("is null")));
  EXPECT_THROW(Steps(context(), "g", {.bindings = {{.is_mutated = true, .host_bytes = 8}}}),
               InvalidArgument);
  EXPECT_NO_THROW(begin(&lengths, 8)());
}

TEST_P(StepsTest, AStepWithoutBindingsAfterOneThatWasRefusedHasNone) {
  Steps steps(context(), "f", {.bindings = {{.host_bytes = sizeof(float)}}});
  const float block = 1;
  const Binding wrong[] = {{&block, sizeof(block) + 1}};
  for (int call = 0; call < 2; ++call) {
    EXPECT_THROW((void)steps.begin({}, wrong), InvalidArgument);
    EXPECT_THAT([&] { (void)steps.begin({}, {}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("0 bindings are given")));
  }
}

TEST_P(StepsTest, AStepBlockIsReadByBeginAlone) {
  for (const std::size_t count : {1u, 1000u}) {  // as kernel arguments, and in pinned memory
    Steps steps(context(), "decode",
                {.bindings = {{.name = "block", .host_bytes = count * sizeof(float)}}});
    const Tensor out = tensor({static_cast<std::int64_t>(count)}, random_floats(count));
    std::vector<float> expected;
    for (int i = 0; i < 4; ++i) {
      expected = random_floats(count);
      std::vector<float> block = expected;
      const Binding bindings[] = {{block.data(), count * sizeof(float)},
                                  {reinterpret_cast<const void*>(out.address()), out.bytes()}};
      Step step = steps.begin({}, bindings);
      std::fill(block.begin(), block.end(), -1.0f);
      for (; step.must_run(); step.end()) {
        const StreamRef stream = current_stream();
        check(stream.api().copy(stream.handle(), reinterpret_cast<void*>(out.address()),
                                step.address(0), out.bytes()),
              "copy the block");
        eager_break([&](const StepValues& values) {
          EXPECT_EQ(std::memcmp(values.bytes(0).data(), expected.data(), out.bytes()), 0);
        });
      }
      EXPECT_EQ(values(out), expected) << i;
    }
    EXPECT_EQ(steps.stats().replays, 2u);
  }
}

TEST_P(StepsTest, WorkThatWasRefusedDuringACaptureRunsOnceMoreAlsoIfTheErrorWasSwallowed) {
  Steps steps = make_steps();
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> tokens = new_tokens();
    for (Step step = steps.begin({}, bindings()); step.must_run(); step.end()) {
      try {
        context().eager([&] { forward(current_stream(), 1, step.address(0)); });
      } catch (const CaptureError&) {  // as code that only wants to continue
      }
    }
    expect_step(1, tokens);
    expect_cache();
  }
  EXPECT_EQ(steps.stats().recordings, 0u);
  EXPECT_EQ(steps.stats().skipped(SkipReason::kCaptureFailed), 3u);
}

TEST_P(StepsTest, WorkThatRefusesItsCaptureRunsOnceMoreAndThenWithoutAGraph) {
  Steps steps = make_steps();
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> tokens = new_tokens();
    int runs = 0;
    for (Step step = steps.begin({}, bindings()); step.must_run(); step.end()) {
      ++runs;
      if (step.is_captured())
        refuse_capture("the engine would not enqueue");
      else
        forward(current_stream(), 1, step.address(0));
    }
    EXPECT_EQ(runs, i == 1 ? 2 : 1);
    expect_step(1, tokens);
    expect_cache();
  }
  EXPECT_EQ(steps.stats().recordings, 0u);
  EXPECT_EQ(steps.stats().skipped(SkipReason::kCaptureFailed), 3u);
}

TEST_P(StepsTest, ABindingThatMovedIsProposedAsCopiedOrPerSession) {
  Steps steps = make_steps();
  for (int i = 0; i < 2; ++i)
    for (Step step = steps.begin({}, bindings()); step.must_run(); step.end())
      forward(current_stream(), 1, step.address(0));
  std::vector<Binding> moved = bindings();
  const Tensor other = tensor({kCount}, random_numbers());
  moved[1] = binding_of(other);
  EXPECT_THAT(to_string(steps.explain({}, moved)),
              HasSubstr("a binding of Steps may be copied, or be per session"));
}

TEST_P(StepsTest, WorkThatRefusesItsWarmUpIsNeverCaptured) {
  Steps steps = make_steps();
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> tokens = new_tokens();
    for (Step step = steps.begin({}, bindings()); step.must_run(); step.end()) {
      EXPECT_FALSE(step.is_captured());
      if (i == 0) step.refuse("the engine reads a length");
      forward(current_stream(), 1, step.address(0));
    }
    expect_step(1, tokens);
    expect_cache();
  }
  EXPECT_EQ(steps.stats().skipped(SkipReason::kCaptureFailed), 2u);
  EXPECT_THAT(to_string(steps.explain({}, bindings())),
              HasSubstr("capture of 'decode' was refused: the engine reads a length; captures do "
                        "not allow that, and it is not tried again"));
}

TEST_P(StepsTest, AStepOutlivesItsSteps) {
  std::optional<Step> step;
  {
    Steps steps = make_steps();
    step.emplace(steps.begin({}, bindings()));
  }
  step->end();
  step.reset();
  validate();
}

// Compared with an engine without graphs.
TEST_P(StepsTest, RandomCallsDoWhatTheWorkAloneWouldDo) {
  Steps steps = make_steps({.max_recordings = 2, .at_limit = AtLimit::kEvict});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 3, 0); });
  std::vector<Tensor> held;
  const Tensor first = weights_on_device_;
  const Tensor second = tensor({kCount}, weights_);
  const auto has_done_enough = [&] {
    return steps.stats().replays > 20 && steps.stats().evictions > 0;
  };
  for (int i = 0; i < 300 || !has_done_enough(); ++i) {
    const auto dice = random_() % 16;
    if (dice == 0) {
      const std::vector<float> tokens = new_tokens();
      const int draft = static_cast<int>(random_() % 3);
      const bool has_happened = steps.begin({{"draft", draft}}, bindings()).replayed();
      if (has_happened) expect_step(static_cast<float>(draft), tokens);
      expect_cache();
    } else if (dice == 1) {
      steps.invalidate(bindings()[2].address, 1);
    } else if (dice == 2) {
      weights_on_device_ = random_() % 2 == 0 ? first : second;
    } else if (dice == 3) {
      context().mark_step();
      held.clear();
    } else if (dice < 7) {
      const std::vector<float> x = random_floats(kCount);
      held.push_back(f(tensor({kCount}, x)));
      EXPECT_EQ(values(held.back()), affine_of(x, 3, 0));
      if (held.size() > 3) held.erase(held.begin());
    } else {
      call(steps, static_cast<int>(random_() % 3), random_() % tokens_.size());
      for (float& value : cache_)
        value = static_cast<float>(static_cast<int>(value) % 512);
      cache_on_device_.copy_from<float>(cache_);
    }
    if (i % 50 == 0) validate();
  }
  held.clear();
}

// A random program of an engine: keys, moving tokens, changing streams, steps that are left,
// released memory, and compiled functions of the same context whose outputs are held.
class EngineProgram {
 public:
  EngineProgram(Device device, unsigned seed)
      : random_(seed),
        context_(device),
        streams_{Stream(device, StreamKind::kNonBlocking),
                 Stream(device, StreamKind::kNonBlocking)},
        steps_(context_, "decode",
               {.bindings = {{.is_copied = true},
                             {.is_mutated = true},
                             {.host_bytes = block_bytes(seed)}},
                .max_recordings = 3,
                .at_limit = AtLimit::kEvict}),
        f_(compile(context_, "f", [](Tensor x) { return affine(affine(x, 1, 1), 2, 0); })),
        block_(block_bytes(seed) / sizeof(float)) {
    for (Tensor& tokens : tokens_)
      tokens = filled(device, NAN);
    for (Tensor& cache : caches_)
      cache = filled(device, 0);
    seven_ = filled(device, 7);
  }

  // Returns whether all results were right.
  bool run() {
    for (int i = 0; i < 40; ++i)
      act();
    check(device_api(context_.device()).synchronize_device(0), "wait for the device");
    bool is_right = true;
    for (std::size_t i = 0; i < caches_.size(); ++i)
      is_right =
          is_right && caches_[i].to_vector<float>() == std::vector<float>(kSize, expected_[i]);
    for (const auto& [y, value] : held_)
      is_right = is_right && y.to_vector<float>() == std::vector<float>(kSize, value);
    return is_right;
  }

 private:
  static constexpr std::int64_t kSize = 16;

  static Tensor filled(Device device, float value) {
    return from_host<float>({kSize}, std::vector<float>(kSize, value), device);
  }
  static Binding binding_of(const Tensor& tensor) {
    return {reinterpret_cast<const void*>(tensor.address()), tensor.bytes()};
  }
  template <typename... Arguments>
  void launch(KernelFunction kernel, const Arguments&... arguments) {
    check(stream().graphs().launch_kernel(stream().handle(), kernel, dims_for(kSize),
                                          arguments_of(arguments...)),
          "launch a kernel");
  }
  StreamRef stream() const { return streams_[at_]; }

  void act() {
    switch (random_() % 8) {
      case 0: {  // the engine orders accesses to its memory, the context those to its pools
        const StreamRef before = stream();
        at_ ^= 1;
        return stream().wait_for(before);
      }
      case 1:
        steps_.invalidate(reinterpret_cast<const void*>(caches_[0].address()), 1);
        return;
      case 2: {
        const StreamScope scope(stream());
        const float value = next_value();
        Tensor x = tokens_[2];
        void* const data = reinterpret_cast<void*>(x.address());
        launch(fill_kernel(), data, value, kSize);
        held_.emplace_back(f_(x), 2 * (value + 1));
        if (held_.size() > 2) held_.erase(held_.begin());
        return;
      }
      default:
        return step(random_() % 4 == 0);
    }
  }

  void step(bool leaves) {
    const std::size_t place = random_() % 2;
    const std::size_t cache = random_() % caches_.size();
    const int draft = static_cast<int>(random_() % 3);
    const float value = next_value();
    void* const given = reinterpret_cast<void*>(tokens_[place].address());
    launch(fill_kernel(), given, value, kSize);
    const float in_block = next_value();
    std::fill(block_.begin(), block_.end(), in_block);
    const Binding bindings[] = {binding_of(tokens_[place]),
                                binding_of(caches_[cache]),
                                {block_.data(), block_.size() * sizeof(float)}};
    const bool breaks = draft == 1;
    for (Step step = steps_.begin({{"draft", draft}}, bindings, stream()); step.must_run();
         step.end()) {
      if (leaves) return;
      const void* const tokens = step.address(0);
      void* const to = step.address(1);
      launch(axpy_kernel(), static_cast<float>(draft), tokens, to, kSize);
      if (breaks) {
        eager_break([this, to](const StepValues& values) {
          const auto first = values.bytes(2).first<sizeof(float)>();
          float number;
          std::memcpy(&number, first.data(), sizeof(number));
          const StreamRef on = current_stream();
          const void* const seven = reinterpret_cast<const void*>(seven_.address());
          check(on.graphs().launch_kernel(on.handle(), axpy_kernel(), dims_for(kSize),
                                          arguments_of(number, seven, to, kSize)),
                "launch a kernel");
        });
      }
      const void* const block = step.address(2);
      const float one = 1;
      launch(axpy_kernel(), one, block, to, kSize);
    }
    std::fill(block_.begin(), block_.end(), NAN);
    expected_[cache] += static_cast<float>(draft) * value + in_block + (breaks ? 7 * in_block : 0);
  }

  float next_value() { return static_cast<float>(random_() % 16); }
  // Kernel arguments, or pinned memory.
  static std::size_t block_bytes(unsigned seed) { return seed % 2 == 0 ? 64 : 4096; }

  std::mt19937 random_;
  Context context_;
  std::array<Stream, 2> streams_;
  std::size_t at_ = 0;  // the index of the stream in use
  Steps steps_;
  CompiledFunction<Tensor(Tensor)> f_;
  std::array<Tensor, 3> tokens_;
  std::array<Tensor, 2> caches_;
  std::array<float, 2> expected_{};
  std::vector<std::pair<Tensor, float>> held_;
  std::vector<float> block_;
  Tensor seven_;
};

TEST(StepsOrderTest, RandomProgramsAreRightInAnyOrder) {
  const unsigned first = std::random_device()();
  for (unsigned seed = first; seed < first + 300; ++seed) {
    const StrictHostDevice host =
        make_strict_host_device({.executor = HostExecutor::kRandom, .seed = seed});
    HostSlot::instance().put(*host.device);
    EXPECT_TRUE(EngineProgram(HostSlot::instance().device(), seed).run()) << "seed " << seed;
    EXPECT_THAT(host.memory->take_findings(), ::testing::IsEmpty()) << "seed " << seed;
    if (HasFailure()) break;
  }
  HostSlot::instance().put(host_device_api());
}

}  // namespace
}  // namespace cgtree::testing
