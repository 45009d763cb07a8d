// Verified replays: right replays pass and leave no trace, and every kind of wrong replay is found.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "cgtree/steps.h"
#include "extensions/verify/verification.h"
#include "extensions/verify/verify.h"
#include "extensions/watch/monitor.h"
#include "interop/device/device_api.h"
#include "interop/device/kernel.h"
#include "interop/random/random.h"
#include "tests/support/failing_device.h"
#include "tests/support/inside.h"
#include "tests/support/random_steps.h"
#include "tests/support/test_kernels.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kCallsToReplay = 2;  // a warm-up and a recording

class VerifyTest : public TreeTest {
 protected:
  void SetUp() override {
    TreeTest::SetUp();
    if (context_) verify_every(1);
  }
  void verify_every(std::size_t every) { make_context({.extensions = {verify({.every = every})}}); }

  // Calls `replay` and returns its divergence; fails if there is none.
  template <typename Replay>
  Divergence divergence_of(Replay&& replay) {
    try {
      (void)replay();
    } catch (const VerifyError& error) {
      EXPECT_EQ(error.message(), to_string(error.divergence()));
      return error.divergence();
    }
    ADD_FAILURE() << "the replay does not differ";
    return {};
  }
  Tensor zeros(const Shape& shape) {
    return tensor(shape, std::vector<float>(static_cast<std::size_t>(shape.elements()), 0));
  }
};
CGTREE_ON_ALL_DEVICES(VerifyTest);

TEST_P(VerifyTest, EachNthReplayOfEachRecordingIsVerified) {
  for (const std::size_t every : {1, 2, 3, 7}) {
    verify_every(every);
    int runs = 0;
    const CompiledFunction f = compile(context(), "f", [&](Tensor x) {
      ++runs;
      return affine(x, 3, 1);
    });
    constexpr int kReplays = 14;
    for (const std::int64_t size : {5, 8}) {
      for (int call = 0; call < kCallsToReplay + kReplays; ++call) {
        const std::vector<float> x = random_floats(size);
        EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, 3, 1));
      }
    }
    const std::uint64_t verified = 2 * (kReplays / every);
    EXPECT_EQ(f.stats().replays, 2u * kReplays);
    EXPECT_EQ(f.stats().verified, verified);
    EXPECT_EQ(f.stats().differed, 0u);
    EXPECT_EQ(runs, 2 * kCallsToReplay + static_cast<int>(verified));
  }
}

TEST_P(VerifyTest, TheFirstReplaysOfEachRecordingAreVerifiedAtGrowingDistances) {
  for (const std::size_t of_context : {0, 1, 4, 70}) {
    for (const std::size_t of_function : {0, 3}) {
      make_context({.extensions = {verify({.first = of_context})}});
      int runs = 0;
      std::vector<int> turns;
      const CompiledFunction f = compile(context(), "f",
                                         [&](Tensor x) {
                                           ++runs;
                                           return affine(x, 3, 1);
                                         },
                                         {.verify_first = of_function});
      for (const std::int64_t size : {5, 8}) {
        for (int call = 0; call < kCallsToReplay + 20; ++call) {
          const std::vector<float> x = random_floats(size);
          const int before = std::exchange(runs, 0);
          EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, 3, 1));
          if (call >= kCallsToReplay && runs > 0) turns.push_back(call - kCallsToReplay + 1);
          runs += before;
        }
      }
      std::vector<int> expected = {1, 2, 4, 8, 16};
      expected.resize(std::min(expected.size(), std::max(of_context, of_function)));
      const std::size_t count = expected.size();
      expected.resize(2 * count);
      std::copy_n(expected.begin(), count, expected.begin() + static_cast<std::ptrdiff_t>(count));
      EXPECT_EQ(turns, expected);
      EXPECT_EQ(f.stats().replays, 40u);
      EXPECT_EQ(f.stats().verified, expected.size());
    }
  }
}

TEST_P(VerifyTest, AValueThatChangesIsFoundByTheNextOfTheFirstTurns) {
  for (const int changed_at : {1, 2, 4, 8}) {
    for (const int early : {0, 1}) {
      if (changed_at == 1 && early == 1) continue;
      make_context({.extensions = {verify({.first = 4})}});
      float scale = 2;
      const CompiledFunction f =
          compile(context(), "scaled", [&](Tensor x) { return affine(x, scale, 0); });
      const std::vector<float> x = {1, 2, 3};
      const int right = kCallsToReplay + changed_at - 1 - (changed_at > 2 ? early : 0);
      for (int call = 0; call < right; ++call)
        EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 2, 0));
      scale = 3;
      for (int call = right; call < kCallsToReplay + changed_at - 1; ++call)
        EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 2, 0)) << "not verified";
      const Divergence found = divergence_of([&] { return f(tensor({3}, x)); });
      EXPECT_EQ(found.function, "scaled");
      EXPECT_EQ(found.eager, "3");
      EXPECT_EQ(f.stats().replays, static_cast<std::uint64_t>(changed_at - 1));
    }
  }
}

TEST_P(VerifyTest, FirstReplaysWithDrawsStateAndOutputsGiveWhatTheyGiveUnverified) {
  const auto run = [&](std::size_t first) {
    make_context({.extensions = {verify({.first = first})}});
    const Generator generator(seed_);
    const CompiledFunction f = compile(context(), "f",
                                       [=](Tensor x, Tensor state) {
                                         update(state, 1, 1);
                                         return std::array{add_noise(x, generator), add(x, state)};
                                       },
                                       {.inputs = {{}, {.is_static = true, .is_mutated = true}}});
    random_.seed(seed_);
    const Tensor state = random_tensor({6});
    std::vector<std::vector<float>> made;
    for (int call = 0; call < 24; ++call) {
      const auto [noise, sum] = f(random_tensor({6}), state);
      for (const Tensor& tensor : {noise, sum, state})
        made.push_back(values(tensor));
    }
    EXPECT_EQ(f.stats().verified, first);
    EXPECT_EQ(f.stats().differed, 0u);
    return std::pair(made, generator.state());
  };
  EXPECT_EQ(run(4), run(0));
}

TEST_P(VerifyTest, FirstReplaysWithBreaksAreLeftOutAndTheFunctionsOfBreaksRunOnce) {
  make_context({.extensions = {verify({.first = 3})}});
  int breaks = 0;
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    eager_break([&breaks](const StepValues&) { ++breaks; });
    return affine(y, 1, 1);
  });
  for (int call = 1; call <= 12; ++call) {
    EXPECT_EQ(values(f(zeros({2}))), (std::vector<float>{1, 1}));
    EXPECT_EQ(breaks, call);
  }
  EXPECT_EQ(f.stats().replays, 10u);
  EXPECT_EQ(f.stats().verified, 0u);
  EXPECT_EQ(f.stats().unverified[static_cast<int>(UnverifiedReason::kEagerBreaks)], 3u);
}

// Hints are unaffected: calls that are not verified are predicted as before.
TEST_P(VerifyTest, ALoopOfSeveralFunctionsAndKeysTakesTheSameRecordings) {
  const auto run = [&](std::size_t every, std::size_t of_first = 0) {
    make_context({.extensions = {verify({.every = every, .first = of_first})}});
    const CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
    const CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 1, 1); });
    std::mt19937 random(seed_);
    std::vector<Tensor> held(3);
    std::vector<std::uintptr_t> distances;
    std::uintptr_t first = 0;
    for (int step = 0; step < 60; ++step) {
      const Tensor x = tensor({4}, std::vector<float>{1, 2, 3, 4});
      const std::string key(1, static_cast<char>('a' + random() % 3));
      const Tensor y = f.keyed({{"k", key}})(x);
      Tensor z = g(y);
      if (first == 0) first = y.address();
      distances.push_back(y.address() - first);
      distances.push_back(z.address() - first);
      held[random() % 3] = std::move(z);
    }
    const ContextStats stats = context().stats();
    return std::pair(distances, std::array{stats.replays, stats.recordings, stats.warm_ups});
  };
  const auto without = run(1'000'000);
  for (const std::size_t every : {1, 2, 3})
    EXPECT_EQ(run(every), without);
  EXPECT_EQ(run(0, 4), without);
  EXPECT_EQ(run(3, 2), without);
}

TEST_P(VerifyTest, AValueOfTheHostThatWasCapturedIsFound) {
  float scale = 2;
  const CompiledFunction f =
      compile(context(), "scaled", [&](Tensor x) { return affine(x, scale, 0); },
              {.outputs = {{.name = "y"}}});
  const std::vector<float> x = {0, 0, 5, 7};
  for (int call = 0; call < kCallsToReplay + 1; ++call)
    EXPECT_EQ(values(f(tensor({2, 2}, x))), affine_of(x, 2, 0));

  scale = 3;
  const Divergence found = divergence_of([&] { return f(tensor({2, 2}, x)); });

  EXPECT_EQ(found.of, Divergence::Of::kOutput);
  EXPECT_EQ(found.function, "scaled");
  EXPECT_EQ(found.what, "output 0 'y'");
  EXPECT_EQ(found.element, 2u);
  EXPECT_EQ(found.position, (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(found.replayed, "10");
  EXPECT_EQ(found.eager, "15");
  EXPECT_EQ(found.differing, 2u);
  EXPECT_EQ(found.elements, 4u);
  EXPECT_EQ(found.largest, 7);
  EXPECT_EQ(found.node, 1u);
  EXPECT_THAT(to_string(found),
              AllOf(HasSubstr("'scaled'"), HasSubstr("(node 1)"),
                    HasSubstr("at [1, 0]: 2 of 4 elements"), HasSubstr("replayed 10, eager 15")));
}

// The recording uses the memory of the first tensor.
TEST_P(VerifyTest, APointerToMemoryThatWasReplacedIsFound) {
  Tensor weight = zeros({4});
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) { return add(x, weight); });
  const Tensor x = random_tensor({4});
  for (int call = 0; call < kCallsToReplay + 1; ++call)
    EXPECT_EQ(values(f(x)), values(x));

  const Tensor old = weight;
  weight = tensor({4}, std::vector<float>{0, 0, 0, 4});
  const Divergence found = divergence_of([&] { return f(x); });

  EXPECT_EQ(found.element, 3u);
  EXPECT_EQ(found.differing, 1u);
}

TEST_P(VerifyTest, AStateThatIsNotDeclaredIsFound) {
  const Tensor state = zeros({3});
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    update(state, 1, 1);
    return add(x, state);
  });
  const Tensor x = zeros({3});
  for (int call = 1; call <= kCallsToReplay; ++call)
    EXPECT_EQ(values(f(x)), std::vector<float>(3, static_cast<float>(call)));

  const Divergence found = divergence_of([&] { return f(x); });

  EXPECT_EQ(found.replayed, "3");
  EXPECT_EQ(found.eager, "4");
}

TEST_P(VerifyTest, StaticMutatedInputsAreVerifiedAndStayAsTheReplayHasLeftThem) {
  float step = 1;
  const CompiledFunction f =
      compile(context(), "f",
              [&](Tensor x, Tensor cache) {
                update(cache, 1, step);
                return add(x, cache);
              },
              {.inputs = {{}, {.name = "cache", .is_static = true, .is_mutated = true}}});
  const Tensor cache = random_tensor({6});
  std::vector<float> expected = values(cache);
  for (int call = 0; call < 7; ++call) {
    const std::vector<float> x = random_floats(6);
    expected = affine_of(expected, 1, 1);
    std::vector<float> sum = x;
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += expected[i];
    EXPECT_EQ(values(f(tensor({6}, x), cache)), sum);
    EXPECT_EQ(values(cache), expected);
  }
  EXPECT_EQ(f.stats().verified, 5u);

  step = 2;
  const Divergence found = divergence_of([&] { return f(zeros({6}), cache); });

  EXPECT_EQ(found.differing, 6u);
  EXPECT_EQ(values(cache), affine_of(expected, 1, 1));
}

TEST_P(VerifyTest, AMutatedInputThatNoOutputShowsIsFound) {
  float step = 1;
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) { update(x, 1, step); },
                                     {.inputs = {{.name = "state", .is_mutated = true}}});
  const Tensor x = tensor({2, 3}, std::vector<float>{0, 1, 2, 3, 4, 5});
  const Tensor columns = x.transpose(0, 1).slice(0, 1, 3);
  for (int call = 0; call < kCallsToReplay + 1; ++call)
    f(columns);

  step = 0.5;
  const Divergence found = divergence_of([&] {
    f(columns);
    return 0;
  });

  EXPECT_EQ(found.of, Divergence::Of::kInput);
  EXPECT_EQ(found.what, "input 0 'state'");
  EXPECT_EQ(found.replayed, "5");
  EXPECT_EQ(found.eager, "4.5");
  EXPECT_EQ(values(x), (std::vector<float>{0, 5, 6, 3, 8, 9}));
}

TEST_P(VerifyTest, ManagedInputsThatAreWrittenInPlaceAreVerified) {
  float step = 1;
  const CompiledFunction make =
      compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  const CompiledFunction bump = compile(context(), "bump",
                                        [&](Tensor y) {
                                          update(y, 1, step);
                                          return y;
                                        },
                                        {.inputs = {{.is_mutated = true}}});
  for (int call = 0; call < 6; ++call) {
    const std::vector<float> x = random_floats(5);
    const Tensor y = make(tensor({5}, x));
    const Tensor same = bump(y);
    EXPECT_EQ(same.address(), y.address());
    EXPECT_EQ(values(y), affine_of(x, 2, 1));
  }
  EXPECT_GE(bump.stats().verified, 3u);

  step = 5;
  const std::vector<float> x = random_floats(5);
  const Tensor y = make(tensor({5}, x));
  const Divergence found = divergence_of([&] { return bump(y); });

  EXPECT_EQ(found.of, Divergence::Of::kInput);
  EXPECT_EQ(values(y), affine_of(x, 2, 1));
}

TEST_P(VerifyTest, BuffersAreVerifiedAndKeepWhatTheReplayHasWritten) {
  float scale = 2;
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) { return affine(x, scale, 0); });
  const Tensor table = zeros({4, 2});
  const Tensor buffer = table.slice(1, 0, 1);
  const auto call = [&](const std::vector<float>& x) { return f.into(buffer)(tensor({4, 1}, x)); };
  for (int i = 0; i < 5; ++i)
    (void)call(random_floats(4));
  EXPECT_EQ(f.stats().verified, 3u);

  scale = -2;
  const std::vector<float> x = {1, 2, 3, 4};
  const Divergence found = divergence_of([&] { return call(x); });

  EXPECT_EQ(found.what, "output 0");
  EXPECT_EQ(found.eager, "-2");
  EXPECT_EQ(values(table), (std::vector<float>{2, 0, 4, 0, 6, 0, 8, 0}));
}

TEST_P(VerifyTest, OutputsThatAreInputsOrComeFromOutsideAreVerified) {
  const Tensor constant = zeros({3});
  float step = 1;
  const CompiledFunction f =
      compile(context(), "f",
              [&](Tensor x, Tensor state) {
                update(state, 1, 1);
                update(constant, 1, step);
                return std::array{x, state.slice(0, 1, 3), constant, affine(x, 1, 0)};
              },
              {.inputs = {{}, {.is_mutated = true}}});
  for (int call = 1; call <= 6; ++call) {
    const std::vector<float> x = random_floats(3);
    const Tensor state = tensor({4}, std::vector<float>{0, 1, 2, 3});
    const auto [same, view, outside, fresh] = f(tensor({3}, x), state);
    EXPECT_EQ(values(same), x);
    EXPECT_EQ(values(view), (std::vector<float>{2, 3}));
    EXPECT_EQ(values(outside), std::vector<float>(3, static_cast<float>(call)));
    EXPECT_EQ(values(fresh), x);
  }
  EXPECT_EQ(f.stats().verified, 4u);

  step = 3;
  const Divergence found = divergence_of([&] { return f(zeros({3}), zeros({4})); });

  EXPECT_EQ(found.what, "output 2");
  EXPECT_EQ(found.replayed, "7");
  EXPECT_EQ(found.eager, "9");
  EXPECT_EQ(values(constant), std::vector<float>(3, 7));
}

// The eager run gets such memory with its contents before the replay; the contents after the replay
// are saved.
TEST_P(VerifyTest, AnOutputFromOutsideIsComparedAsTheReplayHasLeftIt) {
  const Tensor first = zeros({3}), second = zeros({3});
  bool takes_second = false;
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const Tensor& place = takes_second ? second : first;
    update(place, 1, 1);
    return std::array{place, affine(x, 1, 0)};
  });
  for (int call = 0; call < kCallsToReplay + 1; ++call)
    (void)f(zeros({3}));

  takes_second = true;
  const Divergence found = divergence_of([&] { return f(zeros({3})); });

  EXPECT_EQ(found.what, "output 0");
  EXPECT_EQ(found.replayed, "4");
  EXPECT_EQ(found.eager, "1");
  EXPECT_EQ(values(first), std::vector<float>(3, 4));
}

TEST_P(VerifyTest, OutputsThatShareMemoryAndEmptyOnesAreVerified) {
  float shift = 0;
  const CompiledFunction f =
      compile(context(), "f",
              [&](Tensor x, Tensor none) {
                update(none, 1, 1);
                const Tensor y = affine(x, 2, shift);
                return std::array{y.slice(0, 1, 3), y, y, none, empty({0, 3}, DType::kFloat32)};
              },
              {.inputs = {{}, {.is_mutated = true}}});
  const Tensor none = zeros({0});
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(3);
    const auto [view, whole, again, same, nothing] = f(tensor({3}, x), none);
    EXPECT_EQ(values(whole), affine_of(x, 2, 0));
    EXPECT_EQ(values(view), affine_of({x[1], x[2]}, 2, 0));
    EXPECT_EQ(again.address(), whole.address());
    EXPECT_EQ(same.elements() + nothing.elements(), 0);
  }
  EXPECT_EQ(f.stats().verified, 3u);

  shift = 1;
  EXPECT_EQ(divergence_of([&] { return f(zeros({3}), none); }).what, "output 0");
}

// Either all views are saved, or no replay is verified.
TEST_P(VerifyTest, SeveralViewsOfMemoryFromOutsideStayAsTheReplayHasLeftThem) {
  for (const bool overlap : {false, true}) {
    verify_every(1);
    const Tensor outside = zeros({4});
    const CompiledFunction f = compile(context(), "f", [&](Tensor) {
      update(outside, 1, 1);
      return std::array{outside.slice(0, 0, 2), outside.slice(0, overlap ? 0 : 2, 4)};
    });
    for (int call = 1; call <= 5; ++call) {
      (void)f(zeros({1}));
      EXPECT_EQ(values(outside), std::vector<float>(4, static_cast<float>(call)));
    }
    EXPECT_EQ(f.stats().verified, overlap ? 0u : 3u);
    EXPECT_EQ(f.stats().unverified[static_cast<int>(UnverifiedReason::kSharedMemory)],
              overlap ? 3u : 0u);
  }
}

TEST_P(VerifyTest, AnotherKindOrNumberOfOutputsIsFound) {
  int phase = 0;
  const CompiledFunction f = compile(context(), "f",
                                     [&](std::span<const Tensor> x) -> std::vector<Tensor> {
                                       if (phase == 1)
                                         return {affine(x[0], 1, 0), affine(x[0], 1, 0)};
                                       if (phase == 2) return {affine(x[0].slice(0, 0, 2), 1, 0)};
                                       if (phase == 3) return {x[0].slice(0, 1, 4)};
                                       return {x[0].slice(0, 0, 3)};
                                     },
                                     {.inputs = {{.is_mutated = true}}});
  const Tensor x = random_tensor({4});
  for (int call = 0; call < kCallsToReplay + 1; ++call)
    (void)f(std::span(&x, 1));
  const auto found = [&](int next) {
    phase = next;
    return divergence_of([&] { return f(std::span(&x, 1)); });
  };

  const Divergence number = found(1);
  EXPECT_EQ(number.of, Divergence::Of::kStep);
  EXPECT_EQ(number.eager, "2");
  EXPECT_THAT(found(2).eager, HasSubstr("float32 {2}"));
  const Divergence view = found(3);
  EXPECT_THAT(view.replayed, HasSubstr("a view of input 0"));
  EXPECT_THAT(view.eager, HasSubstr("4 bytes away"));
}

TEST_P(VerifyTest, PaddedCallsAreVerifiedWithTheSamePadding) {
  const Generator generator(seed_);
  const CompiledFunction f =
      compile(context(), "f",
              [=](Tensor x, Tensor state) {
                update(state, 1, 1);
                return std::array{add_noise(affine(x, 2, 0), generator), add(x, state)};
              },
              {.inputs = {{.dynamic = {{0, "n"}}}, {.is_mutated = true, .dynamic = {{0, "n"}}}},
               .buckets = {{"n", {4, 8}}},
               .outputs = {{.dynamic = {{0, "n"}}}, {.dynamic = {{0, "n"}}}}});
  const auto run = [&] {
    generator.set_seed(seed_);
    std::vector<std::vector<float>> made;
    random_.seed(seed_);
    for (int call = 0; call < 20; ++call) {
      const auto size = static_cast<std::int64_t>(1 + random_() % 8);
      const Tensor state = random_tensor({size, 2});
      const auto [noise, sum] = f(random_tensor({size, 2}), state);
      for (const Tensor& tensor : {noise, sum, state})
        made.push_back(values(tensor));
    }
    return made;
  };
  const auto once = run();
  EXPECT_EQ(run(), once);
  EXPECT_EQ(f.stats().verified, f.stats().replays);
  EXPECT_EQ(f.stats().replays, 36u);
}

// The eager run has no padding.
TEST_P(VerifyTest, AnOutputThatDependsOnThePaddingIsFound) {
  const CompiledFunction f = compile(
      context(), "f", [&](Tensor x) { return affine(x.slice(0, x.dim(0) - 1, x.dim(0)), 2, 0); },
      {.inputs = {{.dynamic = {{0, "n"}}, .padding = Padding::anything()}},
       .buckets = {{"n", {4}}}});
  const Tensor warm = tensor({4}, std::vector<float>{1, 2, 3, 4});
  for (int call = 0; call < kCallsToReplay + 1; ++call)
    (void)f(warm);

  const Divergence found = divergence_of([&] {
    return f(tensor({3}, std::vector<float>{5, 6, 7}));
  });

  EXPECT_EQ(found.element, 0u);
  EXPECT_EQ(found.replayed, "8");  // twice the value that the recorded call left behind its copy
  EXPECT_EQ(found.eager, "14");
}

TEST_P(VerifyTest, DrawsAreRepeatedAndGeneratorsAreLeftAlone) {
  const Generator generator(seed_);
  const Generator twin(seed_);
  std::uint64_t more = 0;
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    Tensor noisy = add_noise(x, generator);
    if (more > 0) (void)uniform({static_cast<std::int64_t>(more)}, generator);
    return noisy;
  });
  for (int call = 0; call < 6; ++call) {
    const Tensor x = random_tensor({9});
    const Tensor noisy = f(x);
    EXPECT_EQ(values(noisy), values(context().eager([&] { return add_noise(x, twin); })));
    EXPECT_EQ(generator.state(), twin.state());
  }
  EXPECT_EQ(f.stats().verified, 4u);

  more = 9;
  const Tensor x = random_tensor({9});
  const GeneratorState before = generator.state();
  const Divergence found = divergence_of([&] { return f(x); });

  EXPECT_EQ(found.of, Divergence::Of::kDraws);
  EXPECT_EQ(generator.state().offset, before.offset + 9);
  EXPECT_THAT(found.replayed, HasSubstr(fmt::format("offset {}", before.offset + 9)));
}

TEST_P(VerifyTest, AGeneratorThatOnlyTheEagerRunDrawsFromIsFoundAndLeftAlone) {
  const Generator generator(seed_);
  bool draws = false;
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (draws) (void)uniform({3}, generator);
    return affine(x, 1, 0);
  });
  for (int call = 0; call < kCallsToReplay + 1; ++call)
    (void)f(random_tensor({2}));

  draws = true;
  const GeneratorState before = generator.state();
  EXPECT_EQ(divergence_of([&] { return f(random_tensor({2})); }).of, Divergence::Of::kDraws);
  EXPECT_EQ(generator.state(), before);
}

TEST_P(VerifyTest, ATolerancePermitsSmallDifferencesOnly) {
  float scale = 1;
  const CompiledFunction f = compile(context(), "f",
                                     [&](Tensor x, Tensor state) {
                                       update(state, scale, 0);
                                       return affine(x, scale, 0);
                                     },
                                     {.inputs = {{}, {.is_mutated = true, .tolerance = 0.5}},
                                      .outputs = {{.name = "y", .tolerance = 1e-3}}});
  const Tensor x = tensor({3}, std::vector<float>{1, -1000, 0.25});
  for (int call = 0; call < kCallsToReplay + 1; ++call)
    (void)f(x, zeros({3}));

  scale = 1 + 0x1p-11F;
  EXPECT_EQ(values(f(x, tensor({3}, std::vector<float>{1, 2, 3}))),
            (std::vector<float>{1, -1000, 0.25}));
  const FunctionVerification report = verification_of(context()).functions.at(0);
  ASSERT_EQ(report.tensors.size(), 2u);
  EXPECT_EQ(report.tensors[0].what, "output 0 'y'");
  EXPECT_EQ(report.tensors[0].tolerance, 1e-3);
  EXPECT_EQ(report.tensors[0].largest, 1000 * 0x1p-11);

  scale = 1 + 0x1p-9F;
  const Divergence found = divergence_of([&] { return f(x, zeros({3})); });
  EXPECT_EQ(found.differing, 2u);
  EXPECT_EQ(found.tolerance, 1e-3);
  EXPECT_EQ(verification_of(context()).functions.at(0).tensors[0].largest, 1000 * 0x1p-9);
}

TEST_P(VerifyTest, AToleranceThatIsNegativeOrNoNumberIsRefused) {
  const auto step = [](Tensor x) { return affine(x, 1, 0); };
  for (const double wrong : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW((void)compile(context(), "f", step, {.inputs = {{.tolerance = wrong}}}),
                 InvalidArgument);
    EXPECT_THROW((void)compile(context(), "f", step, {.outputs = {{}, {.tolerance = wrong}}}),
                 InvalidArgument);
  }
}

TEST_P(VerifyTest, AnInfiniteToleranceLeavesATensorOut) {
  float scale = 1;
  const CompiledFunction f =
      compile(context(), "f", [&](Tensor x) { return affine(x, scale, 0); },
              {.outputs = {{.tolerance = std::numeric_limits<double>::infinity()}}});
  const Tensor x = tensor({2}, std::vector<float>{1, NAN});
  for (int call = 0; call < kCallsToReplay + 2; ++call) {
    EXPECT_EQ(values(f(x))[0], 1);
    if (call == kCallsToReplay) scale = std::numeric_limits<float>::infinity();
  }
  EXPECT_EQ(f.stats().verified, 2u);
  EXPECT_THAT(to_string(verification_of(context())), HasSubstr("output 0: not compared"));
}

TEST_P(VerifyTest, AfterADifferenceStateAndStatisticsAreThoseOfTheReplay) {
  float step = 1;
  const CompiledFunction f = compile(context(), "f",
                                     [&](Tensor x) {
                                       update(x, 1, step);
                                       return affine(x, 2, 0);
                                     },
                                     {.inputs = {{.is_static = true, .is_mutated = true}}});
  const Tensor x = zeros({4});
  for (int call = 0; call < 4; ++call)
    (void)f(x);
  step = 2;
  for (int call = 4; call < 8; ++call) {
    (void)divergence_of([&] { return f(x); });
    EXPECT_EQ(values(x), std::vector<float>(4, static_cast<float>(call + 1)));
    EXPECT_EQ(stats().live_outputs, 0u);
  }
  step = 1;
  EXPECT_EQ(values(f(x)), std::vector<float>(4, 18));

  const FunctionStats stats = f.stats();
  EXPECT_EQ(stats.calls, 9u);
  EXPECT_EQ(stats.replays, 3u);
  EXPECT_EQ(stats.failures, 4u);
  EXPECT_EQ(stats.verified, 7u);
  EXPECT_EQ(stats.differed, 4u);
}

TEST_P(VerifyTest, AnExceptionOfTheEagerRunIsThrownAfterTheReplay) {
  bool throws = false;
  const Generator generator(seed_);
  const CompiledFunction f = compile(context(), "f",
                                     [&](Tensor x) {
                                       update(x, 1, 1);
                                       Tensor y = add_noise(x, generator);
                                       if (throws) throw std::runtime_error("no more");
                                       return y;
                                     },
                                     {.inputs = {{.is_mutated = true}}});
  const Tensor x = zeros({4});
  for (int call = 0; call < 3; ++call)
    (void)f(x);
  throws = true;
  const GeneratorState before = generator.state();
  EXPECT_THROW((void)f(x), std::runtime_error);
  EXPECT_EQ(values(x), std::vector<float>(4, 4));
  EXPECT_EQ(generator.state().offset, before.offset + 4);
  EXPECT_EQ(stats().live_outputs, 0u);
  throws = false;
  (void)f(x);
  EXPECT_EQ(values(x), std::vector<float>(4, 5));
  EXPECT_EQ(f.stats().failures, 1u);
  EXPECT_EQ(f.stats().replays, 2u);
}

TEST_P(VerifyTest, WithoutMemoryAReplayIsLeftOutAndNothingIsLost) {
  constexpr std::int64_t kElements = 4 << 20;  // 16 MiB
  verify_every(0);
  make_context({.max_bytes = std::size_t{20} << 20,
                .at_limit = AtLimit::kEvict,
                .extensions = {verify({.every = 1})}});
  const CompiledFunction small =
      compile(context(), "small", [](Tensor x) { return affine(x, 2, 0); });
  const CompiledFunction f = compile(context(), "f", [](Tensor cache) { update(cache, 1, 1); },
                                     {.inputs = {{.is_static = true, .is_mutated = true}}});
  const Tensor one = tensor({1}, std::vector<float>{1});
  const Tensor cache =
      from_host<float>(Shape({2 * kElements}), std::vector<float>(2 * kElements, 0), device());
  for (int call = 0; call < 5; ++call) {
    f(cache);
    (void)small(one);
  }
  EXPECT_EQ(values(cache).back(), 5);
  EXPECT_EQ(f.stats().replays, 3u);
  EXPECT_EQ(f.stats().verified, 0u);
  EXPECT_EQ(f.stats().unverified[static_cast<int>(UnverifiedReason::kNoMemory)], 3u);
  EXPECT_EQ(small.stats().verified, 3u);
  EXPECT_EQ(stats().evictions, 0u);
  EXPECT_EQ(stats().kept_recordings, 2u);
}

// The eager run needs memory in addition to that of the recording.
TEST_P(VerifyTest, NoRecordingIsEvictedForAnEagerRun) {
  constexpr std::int64_t kElements = 3 << 20;  // 12 MiB
  make_context({.max_bytes = std::size_t{20} << 20,
                .at_limit = AtLimit::kEvict,
                .extensions = {verify({.every = 1})}});
  const CompiledFunction small =
      compile(context(), "small", [](Tensor x) { return affine(x, 2, 0); });
  const CompiledFunction f = compile(context(), "f", [](Tensor x) {
    const Tensor scratch = empty({kElements}, DType::kFloat32);
    const Tensor part = scratch.slice(0, kElements - 2, kElements);
    update(part, 0, 3);
    return add(x, part);
  });
  for (int call = 0; call < 5; ++call) {
    EXPECT_EQ(values(f(zeros({2}))), std::vector<float>(2, 3));
    (void)small(zeros({2}));
  }
  EXPECT_EQ(f.stats().unverified[static_cast<int>(UnverifiedReason::kNoMemory)], 3u);
  EXPECT_EQ(stats().evictions, 0u);
  EXPECT_EQ(stats().kept_recordings, 2u);
}

TEST_P(VerifyTest, AStepThatRunsOutOfMemoryInItsEagerRunIsLeftOut) {
  bool throws = false;
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (throws) throw OutOfMemory("no room");
    return affine(x, 2, 0);
  });
  const std::vector<float> x = random_floats(4);
  for (int call = 0; call < 6; ++call) {
    throws = call >= 3;
    EXPECT_EQ(values(f(tensor({4}, x))), affine_of(x, 2, 0));
  }
  EXPECT_EQ(f.stats().verified, 1u);
  EXPECT_EQ(f.stats().unverified[static_cast<int>(UnverifiedReason::kNoMemory)], 3u);
}

TEST_P(VerifyTest, StepsThatCannotRunTwiceAreLeftOut) {
  int breaks = 0;
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    Tensor y = affine(x, 2, 0);
    eager_break([&breaks](const StepValues&) { ++breaks; });
    return affine(y, 1, 1);
  });
  const CompiledFunction g = compile(context(), "g",
                                     [](Tensor x, Tensor y) {
                                       update(x, 1, 1);
                                       update(y, 1, 1);
                                     },
                                     {.inputs = {{.is_static = true, .is_mutated = true},
                                                 {.is_static = true, .is_mutated = true}}});
  const Tensor x = zeros({64});
  const Tensor y = x.slice(0, 16, 64);
  for (int call = 1; call <= 5; ++call) {
    EXPECT_EQ(values(f(zeros({2}))), (std::vector<float>{1, 1}));
    EXPECT_EQ(breaks, call);
    g(x, y);
    EXPECT_EQ(values(x)[63], static_cast<float>(2 * call));
  }
  EXPECT_EQ(f.stats().verified + g.stats().verified, 0u);
  EXPECT_EQ(f.stats().unverified[static_cast<int>(UnverifiedReason::kEagerBreaks)], 3u);
  EXPECT_EQ(g.stats().unverified[static_cast<int>(UnverifiedReason::kSharedMemory)], 3u);
}

// An engine with the step: cache = scale * cache + tokens.
class VerifyStepsTest : public VerifyTest {
 protected:
  void SetUp() override {
    VerifyTest::SetUp();
    if (!context_) return;
    cache_ = zeros({4});
    for (Tensor& tokens : tokens_)
      tokens = tensor({4}, std::vector<float>(4, 1));
  }
  void TearDown() override {
    cache_ = Tensor();
    tokens_ = {};
    VerifyTest::TearDown();
  }
  static Binding binding_of(const Tensor& tensor) {
    return {reinterpret_cast<const void*>(tensor.address()), tensor.bytes()};
  }
  Steps make_steps(bool is_compared = true) {
    return Steps(context(), "decode",
                 {.bindings = {{.name = "tokens", .is_copied = true},
                               {.name = "cache", .is_mutated = true, .is_compared = is_compared}}});
  }
  void add_to_cache(const void* tokens) const {
    const StreamRef stream = current_stream();
    check(
        stream.graphs().launch_kernel(
            stream.handle(), axpy_kernel(), dims_for(4),
            arguments_of(1.0F, tokens, reinterpret_cast<void*>(cache_.address()), std::int64_t{4})),
        "launch axpy");
  }
  // Returns the number of runs of the work. `at`: called in each run.
  template <typename At>
  int call(Steps& steps, At&& at, std::size_t place = 0) {
    int runs = 0;
    const Binding given[] = {binding_of(tokens_[place]), binding_of(cache_)};
    for (Step step = steps.begin({}, given); step.must_run(); step.end()) {
      ++runs;
      at(runs);
      update(cache_, scale_, 0);
      add_to_cache(step.address(0));
    }
    context().synchronize();
    return runs;
  }
  int call(Steps& steps, std::size_t place = 0) {
    return call(
        steps, [](int) {}, place);
  }

  float scale_ = 1;
  Tensor cache_;
  std::array<Tensor, 2> tokens_;
};
CGTREE_ON_ALL_DEVICES(VerifyStepsTest);

TEST_P(VerifyStepsTest, WorkIsRunOnceMoreAndComparedWithTheReplay) {
  for (const std::size_t every : {1, 3}) {
    verify_every(every);
    cache_.copy_from<float>(std::vector<float>(4, 0));
    Steps steps = make_steps();
    int runs = 0;
    for (int i = 1; i <= 8; ++i) {
      runs += call(steps, static_cast<std::size_t>(i % 2));
      EXPECT_EQ(values(cache_), std::vector<float>(4, static_cast<float>(i)));
    }
    EXPECT_EQ(steps.stats().replays, 6u);
    EXPECT_EQ(steps.stats().verified, 6 / every);
    EXPECT_EQ(steps.stats().differed, 0u);
    EXPECT_EQ(runs, kCallsToReplay + static_cast<int>(6 / every));
    validate();
  }
}

TEST_P(VerifyStepsTest, WorkThatHasChangedIsFoundAndTheReplayIsKept) {
  Steps steps = make_steps();
  for (int i = 0; i < 3; ++i)
    call(steps);
  scale_ = 2;  // neither in the key nor bound
  const Divergence divergence = divergence_of([&] { return call(steps); });
  EXPECT_EQ(divergence.function, "decode");
  EXPECT_EQ(divergence.what, "binding 1 'cache'");
  EXPECT_EQ(divergence.elements, cache_.bytes());
  EXPECT_EQ(values(cache_), std::vector<float>(4, 4));
  EXPECT_EQ(steps.stats().differed, 1u);
  EXPECT_EQ(steps.stats().failures, 1u);
  EXPECT_EQ(steps.last_outcome()->outcome, Outcome::kThrow);
  scale_ = 1;
  EXPECT_EQ(call(steps), 1);
  EXPECT_EQ(values(cache_), std::vector<float>(4, 5));
}

TEST_P(VerifyStepsTest, ABindingThatIsNotComparedMayDiffer) {
  Steps steps = make_steps(/*is_compared=*/false);
  for (int i = 0; i < 3; ++i)
    call(steps);
  scale_ = 2;
  EXPECT_EQ(call(steps), 1);
  EXPECT_EQ(values(cache_), std::vector<float>(4, 4)) << "as the replay has left it";
}

TEST_P(VerifyStepsTest, WorkThatIsLeftWhileItIsVerifiedFindsWhatTheReplayHasLeft) {
  Steps steps = make_steps();
  for (int i = 0; i < 3; ++i)
    call(steps);
  EXPECT_THROW(call(steps, [](int) { throw std::runtime_error("the engine's own"); }),
               std::runtime_error);
  context().synchronize();
  EXPECT_EQ(values(cache_), std::vector<float>(4, 4));
  EXPECT_EQ(steps.stats().failures, 1u);
  validate();
  EXPECT_EQ(call(steps), 1);
  EXPECT_EQ(values(cache_), std::vector<float>(4, 5));
}

// Such memory would be written twice, and would not be restored.
TEST_P(VerifyStepsTest, WorkOnMemoryThatIsNotBoundAsMutatedIsLeftOut) {
  const Binding all[] = {binding_of(tokens_[0]), binding_of(cache_)};
  for (const std::size_t bound : {1, 2}) {
    cache_.copy_from<float>(std::vector<float>(4, 0));
    Steps steps(context(), "decode", {.bindings = {{.name = "tokens", .is_copied = true}}});
    for (int i = 1; i <= 6; ++i) {
      for (Step step = steps.begin({}, std::span(all).first(bound)); step.must_run(); step.end())
        add_to_cache(step.address(0));
      context().synchronize();
      EXPECT_EQ(values(cache_), std::vector<float>(4, static_cast<float>(i)));
    }
    EXPECT_EQ(steps.stats().replays, 4u);
    EXPECT_EQ(steps.stats().unverified[static_cast<int>(UnverifiedReason::kForeignMemory)], 4u);
  }
}

// A caller that declares memory allows the work on it to run twice, also if it is bound.
TEST_P(VerifyStepsTest, WorkThatReadsDeclaredMemoryIsVerified) {
  context().declare("weights", binding_of(tokens_[0]).address, tokens_[0].bytes());
  const Binding given[] = {binding_of(cache_), binding_of(tokens_[0])};
  for (const std::size_t bound : {1, 2}) {
    cache_.copy_from<float>(std::vector<float>(4, 0));
    Steps steps(context(), "decode", {.bindings = {{.name = "cache", .is_mutated = true}}});
    for (int i = 1; i <= 6; ++i) {
      for (Step step = steps.begin({}, std::span(given).first(bound)); step.must_run(); step.end())
        add_to_cache(binding_of(tokens_[0]).address);
      context().synchronize();
      EXPECT_EQ(values(cache_), std::vector<float>(4, static_cast<float>(i)));
    }
    EXPECT_EQ(steps.stats().verified, 4u);
  }
  context().undeclare("weights");
}

TEST_P(VerifyStepsTest, StepBlocksAreThoseOfTheCall) {
  float block = 0;
  Steps steps(context(), "decode",
              {.bindings = {{.name = "block", .host_bytes = sizeof(block)},
                            {.name = "cache", .is_mutated = true}}});
  for (int i = 1; i <= 5; ++i) {
    block = static_cast<float>(i);
    const Binding given[] = {{&block, sizeof(block)}, binding_of(cache_)};
    for (Step step = steps.begin({}, given); step.must_run(); step.end()) {
      const StreamRef stream = current_stream();
      check(stream.api().copy(stream.handle(), reinterpret_cast<void*>(cache_.address()),
                              step.address(0), sizeof(block)),
            "copy");
    }
    context().synchronize();
    EXPECT_EQ(values(cache_)[0], block);
  }
  EXPECT_EQ(steps.stats().verified, 3u);
}

TEST_P(VerifyTest, NestedCallsOfAnEagerRunAreNotCounted) {
  const CompiledFunction inner =
      compile(context(), "inner", [](Tensor x) { return affine(x, 2, 0); });
  const CompiledFunction outer =
      compile(context(), "outer", [&](Tensor x) { return affine(inner(x), 1, 1); });
  for (int call = 0; call < 5; ++call)
    EXPECT_EQ(values(outer(zeros({2}))), (std::vector<float>{1, 1}));
  EXPECT_EQ(outer.stats().verified, 3u);
  EXPECT_EQ(inner.stats().calls, 2u);
}

TEST_P(VerifyTest, AReportSaysWhatWasCovered) {
  verify_every(2);
  const CompiledFunction f = compile(
      context(), "decode",
      [](Tensor x, Tensor cache) {
        update(cache, 1, 1);
        return add(x, cache);
      },
      {.inputs = {{}, {.name = "cache", .is_mutated = true}}, .outputs = {{.name = "logits"}}});
  const auto calls = [&](std::int64_t size, int count) {
    for (int i = 0; i < count; ++i)
      (void)f(zeros({size}), zeros({size}));
  };
  calls(3, 6);
  calls(4, 3);

  const Verification all = verification_of(context());
  EXPECT_EQ(all.every, 2u);
  ASSERT_EQ(all.functions.size(), 1u);
  const FunctionVerification& report = all.functions[0];
  EXPECT_EQ(report.function, "decode");
  EXPECT_EQ(report.verified, 2u);
  EXPECT_EQ(report.verified_recordings, 1u);
  EXPECT_EQ(report.waiting_recordings, 1u);
  EXPECT_EQ(report.unverified_recordings, 0u);
  EXPECT_THAT(to_string(all),
              AllOf(HasSubstr("decode: 2 replays verified, 0 differed; recordings: 1 verified, 1 "
                              "waiting, 0 left out"),
                    HasSubstr("output 0 'logits': bit for bit, largest difference 0"),
                    HasSubstr("input 1 'cache': bit for bit")));

  const auto snapshot = nlohmann::json::parse(snapshot_json(context()));
  EXPECT_EQ(snapshot["verify_every"], 2);
  EXPECT_EQ(snapshot["functions"][0]["verification"]["verified"], 2);
  EXPECT_EQ(snapshot["functions"][0]["verification"]["compared"].size(), 2u);
  EXPECT_EQ(snapshot["nodes"][0]["verified_replays"], 2);
  EXPECT_THAT(to_string(f.stats()), HasSubstr("verified replays"));
}

TEST_P(VerifyTest, AContextThatVerifiesNothingSaysSo) {
  verify_every(0);
  const CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 1, 0); });
  EXPECT_EQ(to_string(verification_of(context())), "no replay is verified");
  const CompiledFunction g =
      compile(context(), "g", [](Tensor x) { return affine(x, 1, 0); }, {.verify_first = 4});
  EXPECT_THAT(to_string(verification_of(context())),
              AllOf(HasSubstr("g: 0 replays verified"), HasSubstr("4 of the first replays")));
}

// Each launch of a verified replay fails once: in saving, in the eager run, in the comparison and
// in restoring. The state is then that before or after the replay.
TEST(VerifyFailureTest, AFailedLaunchLeavesTheStateBeforeOrAfterTheReplay) {
  FailingDevice& failing = FailingDevice::instance();
  Context context(failing.device(), {.extensions = {verify({.every = 1})}});
  const CompiledFunction f = compile(context, "f",
                                     [](Tensor x) {
                                       update(x, 1, 1);
                                       return affine(x, 2, 0);
                                     },
                                     {.inputs = {{.is_static = true, .is_mutated = true}}});
  const Tensor x = from_host<float>(Shape({3}), std::vector<float>{0, 1, 2}, failing.device());
  float shift = 0;
  for (; shift < 3; ++shift)
    (void)f(x);
  int failed = 0;
  for (int at = 0; at < 20; ++at) {
    failing.arm({.at = at, .function = "launch_kernel"});
    bool has_failed = false;
    try {
      (void)f(x);
    } catch (const DeviceError&) {
      has_failed = true;
    }
    failing.disarm();
    context.synchronize();
    const std::vector<float> now = x.to_vector<float>();
    if (at > 0 || !has_failed) ++shift;  // the first launch saves the copy
    EXPECT_EQ(now, (std::vector<float>{shift, shift + 1, shift + 2})) << "launch " << at;
    failed += has_failed;
    (void)f(x);
    ++shift;
  }
  EXPECT_GE(failed, 6);
  cgtree::testing::validate(context);
}

// After a tensor whose restoring fails, the others are restored.
TEST(VerifyFailureTest, ATensorThatCannotBePutBackCostsNoOther) {
  FailingDevice& failing = FailingDevice::instance();
  const auto zeros = [&] {
    return from_host<float>(Shape({2}), std::vector<float>{0, 0}, failing.device());
  };
  int lost = 0;
  for (int at = 0; at < 14; ++at) {
    Context context(failing.device(), {.extensions = {verify({.every = 1})}});
    float step = 1;
    const CompiledFunction f =
        compile(context, "f",
                [&](Tensor x, Tensor y) {
                  update(x, 1, step);
                  update(y, 1, step);
                },
                {.inputs = std::vector<InputOptions>(2, {.is_static = true, .is_mutated = true})});
    const Tensor x = zeros();
    const Tensor y = zeros();
    for (int call = 0; call < kCallsToReplay; ++call)
      f(x, y);
    step = 5;
    failing.arm({.at = at, .function = "launch_kernel"});
    try {
      f(x, y);
    } catch (const Error&) {
    }
    failing.disarm();
    context.synchronize();
    const std::vector<float> first = x.to_vector<float>();
    const std::vector<float> second = y.to_vector<float>();
    lost += first != second;
    EXPECT_LE(std::min(first[0], second[0]), 3) << "launch " << at;
  }
  EXPECT_GE(lost, 2);
}

// Kernels may have no access to memory of another device, and host code may write it.
TEST(VerifyFailureTest, AnOutputOnAnotherDeviceIsNotTouched) {
  FailingDevice& failing = FailingDevice::instance();
  Context context(failing.device(), {.extensions = {verify({.every = 1})}});
  const Tensor counter =
      from_host<float>(Shape({1}), std::vector<float>{0}, Device{DeviceType::kHost, 0});
  float runs = 0;
  const CompiledFunction f = compile(context, "f", [&](Tensor x) {
    *static_cast<float*>(counter.data()) = ++runs;
    return std::pair(affine(x, 2, 0), counter);
  });
  const Tensor x = from_host<float>(Shape({2}), std::vector<float>{1, 2}, failing.device());
  for (int call = 0; call < 5; ++call) {
    const auto [y, count] = f(x);
    EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{2, 4}));
    EXPECT_EQ(count.to_vector<float>(), std::vector<float>{runs});
  }
  EXPECT_EQ(runs, 5);
  EXPECT_EQ(f.stats().verified, 3u);
  EXPECT_EQ(verification_of(context).functions.at(0).tensors.size(), 1u);
}

// Nothing was compared, so the next replay is verified.
TEST(VerifyFailureTest, AReplayThatFailsBeforeItIsComparedIsVerifiedTheNextTime) {
  FailingDevice& failing = FailingDevice::instance();
  for (const char* const function : {"launch_kernel", "launch"}) {
    Context context(failing.device(), {.extensions = {verify({.every = 3})}});
    const CompiledFunction f = compile(context, "f", [](Tensor x) { update(x, 1, 1); },
                                       {.inputs = {{.is_static = true, .is_mutated = true}}});
    const Tensor x = from_host<float>(Shape({2}), std::vector<float>{0, 0}, failing.device());
    for (int call = 0; call < kCallsToReplay + 2; ++call)
      f(x);
    failing.arm({.at = 0, .function = function});
    EXPECT_THROW(f(x), DeviceError);
    EXPECT_EQ(failing.failed_function(), function);
    failing.disarm();
    EXPECT_EQ(f.stats().verified, 0u);

    f(x);
    EXPECT_EQ(f.stats().verified, 1u) << function;
    f(x);
    f(x);
    EXPECT_EQ(f.stats().verified, 1u) << function;
    f(x);
    EXPECT_EQ(f.stats().verified, 2u) << function;
    cgtree::testing::validate(context);
  }
}

class VerifyEnvironmentTest : public VerifyTest {
 protected:
  void TearDown() override {
    unsetenv("CGTREE_VERIFY");
    VerifyTest::TearDown();
  }
};
CGTREE_ON_ALL_DEVICES(VerifyEnvironmentTest);

TEST_P(VerifyEnvironmentTest, TheEnvironmentSaysHowOftenWhereTheOptionsDoNot) {
  setenv("CGTREE_VERIFY", "3", 1);
  verify_every(0);
  EXPECT_EQ(verification_of(context()).every, 3u);
  verify_every(5);
  EXPECT_EQ(verification_of(context()).every, 5u);
  setenv("CGTREE_VERIFY", "", 1);
  verify_every(0);
  EXPECT_EQ(verification_of(context()).every, 0u);
  for (const char* const wrong : {"yes", "3x", "-1", "1.5", " 2"}) {
    setenv("CGTREE_VERIFY", wrong, 1);
    try {
      const Context made(device());
      ADD_FAILURE() << wrong;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(fmt::format("is \"{}\"", wrong)),
                                      HasSubstr("a whole number is expected")));
    }
  }
}

}  // namespace
}  // namespace cgtree::testing
