// Random numbers: a call draws the numbers of an eager call, in each phase.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <thread>

#include "cgtree/memory/context_memory.h"
#include "cgtree/record/gather.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/random/random.h"
#include "tests/support/inside.h"
#include "tests/support/philox_oracle.h"
#include "tests/support/random_steps.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

class DrawsTest : public TreeTest {
 protected:
  // Three calls: warm-up, recording, replay.
  static constexpr int kPhases = 3;

  std::vector<float> three_draws(const Generator& generator, const CompileOptions& options) {
    const CompiledFunction f = compile(
        context(), "f", [=](Tensor x) { return add(x, uniform({5}, generator)); }, options);
    const Tensor zeros = tensor({5}, std::vector<float>(5, 0));
    std::vector<float> drawn;
    for (int round = 0; round < 2; ++round) {
      generator.set_seed(seed_);
      PhiloxOracle oracle(seed_);
      for (int call = 0; call < kPhases; ++call) {
        drawn = values(f(zeros));
        EXPECT_EQ(drawn, oracle.uniform(5)) << "round " << round << ", call " << call;
      }
    }
    return drawn;
  }
  std::size_t table_bytes() {
    return memory_of(context()).pool(Region::kEager).statistics().allocated_bytes.current;
  }
};
CGTREE_ON_ALL_DEVICES(DrawsTest);

// Row 2 rng_trees.
// Acceptance: trees 2; random cpu_and_cuda_rng.
TEST_P(DrawsTest, RngTreesThreeDrawsRepeatAfterReseedingInEveryPhase) {
  (void)three_draws(Generator(1), {.require_graph = true});
  EXPECT_EQ(stats().replays, 4u);
}

// Row 3 rng_non_trees.
// Acceptance: trees 3.
TEST_P(DrawsTest, RngNonTreesThreeDrawsRepeatAfterReseedingWithoutGraphs) {
  (void)three_draws(Generator(1), {.enabled = false});
  EXPECT_EQ(stats().replays, 0u);
}

// Rows 40 multinomial and 4.2 cudagraphs_aot_eager_compat_equal.
// Acceptance: trees 40; random cudagraphs_aot_eager_compat_equal.
TEST_P(DrawsTest, MultinomialSamplingEqualsTheEagerTwinWithoutASkip) {
  const auto sample = [&](const Generator& generator, bool enabled) {
    return compile(context(), "sample",
                   [=](Tensor x) {
                     return std::tuple(add_noise(x, generator),
                                       random_integers({7, 3}, 0, 50'000, generator),
                                       normal({9}, generator));
                   },
                   {.enabled = enabled});
  };
  const Generator ours(seed_);
  const Generator twins(seed_);
  const auto graphed = sample(ours, true);
  const auto eager = sample(twins, false);

  for (int call = 0; call < 5; ++call) {
    const Tensor x = random_tensor({33});
    const auto [noise, integers, normals] = graphed(x);
    const auto [noise_twin, integers_twin, normals_twin] = eager(x);
    EXPECT_EQ(values(noise), values(noise_twin));
    EXPECT_EQ(integers.to_vector<std::int64_t>(), integers_twin.to_vector<std::int64_t>());
    EXPECT_EQ(values(normals), values(normals_twin));
    EXPECT_EQ(ours.state(), twins.state());
  }
  EXPECT_EQ(graphed.stats().skipped(), 0u);
}

// Row 4.2 simple.
// Acceptance: random simple.
TEST_P(DrawsTest, SimpleRecomputedDrawsEqualTheFirstAndIterationsDiffer) {
  const Generator forward(seed_);
  const Generator recompute(0);
  const CompiledFunction f =
      compile(context(), "forward", [=](Tensor x) { return add_noise(x, forward); });
  const CompiledFunction b =
      compile(context(), "recompute", [=](Tensor x) { return add_noise(x, recompute); });
  const Tensor x = random_tensor({12});
  std::vector<float> last;

  for (int iteration = 0; iteration < 5; ++iteration) {
    recompute.set_state(forward.state());
    const std::vector<float> first = values(f(x));
    EXPECT_EQ(values(b(x)), first);
    EXPECT_NE(first, last);
    last = first;
  }
  EXPECT_EQ(b.stats().replays, 3u);
}

// Rows 4.2 cudagraph_uneven_forward_backward, uneven_forward_backward and retain_graph.
// Acceptance: random cudagraph_uneven_forward_backward, uneven_forward_backward, retain_graph.
TEST_P(DrawsTest, UnevenBackwardsReplayAnySavedForwardStateInAnyOrderAndTwice) {
  const Generator forward(seed_);
  const Generator recompute(0);
  const CompiledFunction f =
      compile(context(), "forward", [=](Tensor x) { return add_noise(x, forward); });
  const CompiledFunction b =
      compile(context(), "backward", [=](Tensor x) { return add_noise(x, recompute); });
  const Tensor x = random_tensor({12});
  std::vector<int> order = {0, 1, 2};

  do {
    std::vector<GeneratorState> saved;
    std::vector<std::vector<float>> drawn;
    for (int i = 0; i < 3; ++i) {
      saved.push_back(forward.state());
      drawn.push_back(values(f(x)));
    }
    for (const int i : order) {
      for (int repeat = 0; repeat < 2; ++repeat) {
        recompute.set_state(saved[i]);
        EXPECT_EQ(values(b(x)), drawn[i]);
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(recording_count(), 2u);
}

// Row 4.3 graphsafe_set_get_rng_state.
// Acceptance: graphs graphsafe_set_get_rng_state.
TEST_P(DrawsTest, GraphsafeSetGetRngStateSeveralGeneratorsInOneGraphEqualTheEagerTwin) {
  const Generator generators[] = {Generator(seed_), Generator(seed_ + 1), Generator(seed_)};
  PhiloxOracle oracles[] = {PhiloxOracle(seed_), PhiloxOracle(seed_ + 1), PhiloxOracle(seed_)};
  (void)generators[2].reserve(100);
  oracles[2].reseed(seed_, 100);
  const CompiledFunction f = compile(context(), "f", [&] {
    const Tensor a = uniform({5}, generators[0]);
    const Tensor b = uniform({6}, generators[1]);
    const Tensor c = uniform({7}, generators[2]);
    return std::array{a, b, c, uniform({8}, generators[0])};
  });

  for (int call = 0; call < 2 + 3; ++call) {
    const auto [a, b, c, d] = f();
    EXPECT_EQ(values(a), oracles[0].uniform(5));
    EXPECT_EQ(values(b), oracles[1].uniform(6));
    EXPECT_EQ(values(c), oracles[2].uniform(7));
    EXPECT_EQ(values(d), oracles[0].uniform(8));
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(generators[i].state().offset, oracles[i].offset());
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

// Row 4.3 memory_stats_of_multiple_generators_and_graphs.
// Acceptance: graphs memory_stats_of_multiple_generators_and_graphs.
TEST_P(DrawsTest, MemoryStatsOfMultipleGeneratorsAndGraphsGoBackToTheBaseline) {
  const Generator generators[] = {Generator(1), Generator(2)};
  const std::size_t baseline = table_bytes();
  std::size_t first = 0;
  for (int round = 0; round < 5; ++round) {
    {
      std::vector<CompiledFunction<Tensor()>> functions;
      for (int i = 0; i < 6; ++i) {
        functions.push_back(compile(context(), "f", [&] {
          return add(uniform({4}, generators[0]), uniform({4}, generators[1]));
        }));
        for (int call = 0; call < kPhases; ++call)
          (void)functions.back()();
      }
      if (round == 0) first = table_bytes();
      EXPECT_GT(first, baseline);
      EXPECT_EQ(table_bytes(), first);
    }
    EXPECT_EQ(table_bytes(), baseline);
  }
}

// Row 4.2 multi_device: contexts on the first and the last device, which may be the same, take
// turns on one thread with any current device.
// Acceptance: random multi_device.
TEST_P(DrawsTest, MultiDeviceEachContextDrawsFromItsOwnGeneratorOnItsOwnDevice) {
  Device last = device();
  while (device_api(device()).attribute(last.id + 1, DeviceAttribute::kExists) ==
         AttributeValue{std::int64_t{1}}) {
    ++last.id;
  }
  const auto make = [&](Context& where, const Generator& generator) {
    return compile(where, "f",
                   [=](Tensor x) { return add(affine(x, 2, 0), uniform({5}, generator)); },
                   {.require_graph = true});
  };
  Context other(last);
  const Generator generators[] = {Generator(seed_), Generator(seed_ + 1)};
  PhiloxOracle oracles[] = {PhiloxOracle(seed_), PhiloxOracle(seed_ + 1)};
  const CompiledFunction<Tensor(Tensor)> f[] = {make(context(), generators[0]),
                                                make(other, generators[1])};

  for (int call = 0; call < 6; ++call) {
    const std::vector<float> x = random_floats(5);
    const Tensor inputs[] = {tensor({5}, x), from_host<float>({5}, x, last)};
    for (int i = 0; i < 2; ++i) {
      std::vector<float> expected = oracles[i].uniform(5);
      for (std::size_t k = 0; k < 5; ++k)
        expected[k] += 2 * x[k];
      const Tensor y = f[i](inputs[i]);
      EXPECT_EQ(y.device(), i == 0 ? device() : last);
      EXPECT_EQ(values(y), expected) << "call " << call << ", context " << i;
    }
  }

  EXPECT_EQ(f[0].stats().replays, 4u);
  EXPECT_EQ(f[1].stats().replays, 4u);
}

// Row 4.3 graph_rng_functional.
// Acceptance: graphs graph_rng_functional.
TEST_P(DrawsTest, GraphRngFunctionalGraphAndEagerDrawsInterleaveAndReseedsAreHonoured) {
  const Generator generator(seed_);
  PhiloxOracle oracle(seed_);
  const CompiledFunction f = compile(context(), "f", [=] { return uniform({10}, generator); });
  const CompiledFunction g = compile(context(), "g", [=] { return uniform({3}, generator); });
  const StreamScope scope(context().stream());

  for (int round = 0; round < 4; ++round) {
    EXPECT_EQ(values(f()), oracle.uniform(10));
    EXPECT_EQ(values(uniform({6}, generator, device())), oracle.uniform(6));
    EXPECT_EQ(values(g()), oracle.uniform(3));
    EXPECT_EQ(values(f()), oracle.uniform(10));
    const GeneratorState saved = generator.state();
    const std::vector<float> next = values(f());
    EXPECT_EQ(next, oracle.uniform(10));
    generator.set_state(saved);
    EXPECT_EQ(values(f()), next);
    generator.set_seed(seed_ + 17 * static_cast<unsigned>(round));
    oracle.reseed(seed_ + 17 * static_cast<unsigned>(round));
    EXPECT_EQ(values(g()), oracle.uniform(3));
    context().mark_step();
  }
  EXPECT_EQ(recording_count(), 2u);
}

// Row 4.3 graph_rng_distributions.
// Acceptance: graphs graph_rng_distributions.
TEST_P(DrawsTest, GraphRngDistributionsCaptureDrawsNothingAndTheFirstLaunchDrawsOnce) {
  const Generator generator(seed_);
  PhiloxOracle oracle(seed_);
  std::vector<std::uint64_t> seen;  // the generator's offset after the draws of the function
  const CompiledFunction f = compile(context(), "f", [&] {
    Tensor floats = uniform({9}, generator);
    Tensor integers = random_integers({5}, -9, 9, generator);
    Tensor normals = normal({5}, generator);
    seen.push_back(std::async(std::launch::async, [&] { return generator.state().offset; }).get());
    return std::array{floats, integers, normals};
  });

  for (int call = 0; call < kPhases; ++call) {
    const auto [floats, integers, normals] = f();
    EXPECT_EQ(values(floats), oracle.uniform(9));
    EXPECT_EQ(integers.to_vector<std::int64_t>(), oracle.integers(5, -9, 9));
    (void)oracle.words(2);
    EXPECT_EQ(generator.state().offset, oracle.offset());
  }
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{8, 8}));  // all drawn by the warm-up
}

// Row 4.3 graph_checkpoint_preserve_rng_state.
// Acceptance: graphs graph_checkpoint_preserve_rng_state.
TEST_P(DrawsTest, GraphCheckpointPreserveRngStateGoesBackToAStateOfItsOwnCall) {
  const Generator generator(seed_);
  PhiloxOracle oracle(seed_);
  const CompiledFunction f = compile(context(), "f", [=] {
    Tensor before = uniform({4}, generator);
    const GeneratorState saved = generator.state();
    Tensor forward = uniform({12}, generator);
    const GeneratorState after = generator.state();
    generator.set_state(saved);
    Tensor recomputed = uniform({12}, generator);
    generator.set_state(after);
    return std::array{before, forward, recomputed, uniform({4}, generator)};
  });

  for (int call = 0; call < kPhases + 2; ++call) {
    const auto [before, forward, recomputed, last] = f();
    EXPECT_EQ(values(before), oracle.uniform(4));
    EXPECT_EQ(values(recomputed), values(forward));
    EXPECT_EQ(values(forward), oracle.uniform(12));
    EXPECT_EQ(values(last), oracle.uniform(4));
    EXPECT_EQ(generator.state().offset, oracle.offset());
  }
}

TEST_P(DrawsTest, ACallThatEndsWhereItBeganDrawsTheSameEachTime) {
  const Generator generator(seed_);
  const CompiledFunction f = compile(context(), "f", [=] {
    const GeneratorState saved = generator.state();
    Tensor drawn = uniform({12}, generator);
    generator.set_state(saved);
    return drawn;
  });
  for (int call = 0; call < kPhases; ++call) {
    EXPECT_EQ(values(f()), PhiloxOracle(seed_).uniform(12));
    EXPECT_EQ(generator.state().offset, 0u);
  }
}

TEST_P(DrawsTest, DrawsOnASideStreamAreThoseOfTheEagerCall) {
  const Generator generator(seed_);
  PhiloxOracle oracle(seed_);
  Stream side(device());
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    side.ref().wait_for(current_stream());
    Tensor aside;
    {
      const StreamScope scope(side);
      aside = uniform({40}, generator);
    }
    Tensor here = add(x, uniform({40}, generator));
    current_stream().wait_for(side);
    return std::pair(aside, here);
  });

  for (int call = 0; call < kPhases + 2; ++call) {
    const auto [aside, here] = f(tensor({40}, std::vector<float>(40, 0)));
    EXPECT_EQ(values(aside), oracle.uniform(40));
    EXPECT_EQ(values(here), oracle.uniform(40));
  }
}

TEST_P(DrawsTest, MoreGeneratorsAndInputsThanOneRootNodeHoldsChainAnother) {
  constexpr int kGenerators = 200;
  constexpr int kInputs = 100;
  std::vector<Generator> generators;
  for (int i = 0; i < kGenerators; ++i)
    generators.emplace_back(seed_ + static_cast<unsigned>(i));
  const CompiledFunction f = compile(context(), "f", [&](std::span<const Tensor> x) {
    std::vector<Tensor> drawn;
    for (int i = 0; i < kGenerators; ++i)
      drawn.push_back(add_noise(x[i % kInputs], generators[i]));
    return drawn;
  });

  for (int call = 0; call < kPhases + 1; ++call) {
    std::vector<Tensor> inputs;
    for (int i = 0; i < kInputs; ++i)
      inputs.push_back(tensor({1}, std::vector<float>{static_cast<float>(i)}));
    const std::vector<Tensor> drawn = f(inputs);
    for (int i = 0; i < kGenerators; ++i) {
      PhiloxOracle oracle(seed_ + static_cast<unsigned>(i));
      oracle.reseed(oracle.seed(), static_cast<std::uint64_t>(call));
      EXPECT_EQ(values(drawn[i])[0], static_cast<float>(i % kInputs) + oracle.uniform(1)[0]);
    }
  }
}

TEST_P(DrawsTest, OneGeneratorInTwoContextsOnTwoThreadsNeverDrawsTheSameTwice) {
  const Generator generator(seed_);
  Context other(device());
  constexpr int kCalls = 200;
  constexpr std::int64_t kBlocks = 3;
  std::vector<std::int64_t> drawn[2];
  const auto run = [&](Context& own, std::vector<std::int64_t>& mine) {
    const CompiledFunction f = compile(own, "f", [=] {
      return random_integers({2 * kBlocks}, std::numeric_limits<std::int64_t>::min(),
                             std::numeric_limits<std::int64_t>::max(), generator);
    });
    for (int call = 0; call < kCalls; ++call) {
      for (const std::int64_t value : f().to_vector<std::int64_t>())
        mine.push_back(value);
    }
  };
  std::thread thread([&] { run(other, drawn[1]); });
  run(context(), drawn[0]);
  thread.join();

  drawn[0].insert(drawn[0].end(), drawn[1].begin(), drawn[1].end());
  std::vector<std::int64_t> expected = PhiloxOracle(seed_).integers(
      2 * 2 * kCalls * kBlocks, std::numeric_limits<std::int64_t>::min(),
      std::numeric_limits<std::int64_t>::max());
  std::sort(drawn[0].begin(), drawn[0].end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(drawn[0], expected);
}

TEST_P(DrawsTest, AGeneratorMayDieBeforeTheRecordingAndTheRecordingBeforeTheGenerator) {
  const CompiledFunction f = [&] {
    auto generator = std::make_unique<Generator>(seed_);
    return compile(context(), "f", [held = Generator(*generator)] { return uniform({3}, held); });
  }();
  PhiloxOracle oracle(seed_);
  for (int call = 0; call < kPhases; ++call)
    EXPECT_EQ(values(f()), oracle.uniform(3));

  const auto generator = std::make_unique<Generator>(seed_);
  Generator* handle = generator.get();
  {
    // By reference: after the capture only the recording holds the generator's position.
    const CompiledFunction g = compile(context(), "g", [&] { return uniform({3}, *handle); });
    PhiloxOracle again(seed_);
    for (int call = 0; call < kPhases; ++call)
      EXPECT_EQ(values(g()), again.uniform(3));
    *handle = Generator(0);
    EXPECT_EQ(values(g()), again.uniform(3));
  }
  EXPECT_EQ(handle->state().offset, 0u);
}

TEST_P(DrawsTest, ReplaysThatDrawNothingAreNotPatched) {
  const Generator generator(seed_);
  const CompiledFunction f = compile(context(), "f", [=](Tensor x) {
    (void)generator.state();
    return affine(x, 2, uniform({0}, generator).elements());
  });
  const Tensor x = random_tensor({4});
  for (int call = 0; call < kPhases; ++call)
    (void)f(x);
  EXPECT_EQ(stats().root_patches, 0u);
}

TEST_P(DrawsTest, ADrawForWhichInputsLeaveNoRoomIsPatchedBesideThem) {
  for (const std::size_t count : {kMaxGatherWords - 2, kMaxGatherWords - 1, kMaxGatherWords}) {
    const Generator ours(seed_);
    const Generator twins(seed_);
    const auto f = compile(context(), "f", [&](std::span<const Tensor> inputs) {
      return std::vector<Tensor>{add_noise(inputs.back(), ours)};
    });
    for (int call = 0; call < 4; ++call) {
      std::vector<Tensor> inputs;
      for (std::size_t i = 0; i < count; ++i)
        inputs.push_back(random_tensor({1}));
      const Tensor eager = context().eager([&] { return add_noise(inputs.back(), twins); });
      EXPECT_EQ(values(f(inputs)[0]), values(eager)) << count;
    }
    EXPECT_EQ(f.stats().replays, 2u);
  }
}

}  // namespace
}  // namespace cgtree::testing
