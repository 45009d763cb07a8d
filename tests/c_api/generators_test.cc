// Random numbers through C: in every phase, a call draws the numbers of an eager call.
#include <algorithm>
#include <random>
#include <thread>

#include "tests/c_api/draw_kernels.h"
#include "tests/c_api/step_fixture.h"
#include "tests/support/philox_oracle.h"

namespace cgtree::testing {
namespace {

OwnedGenerator make_generator(std::uint64_t seed) {
  OwnedGenerator generator;
  EXPECT_DONE(cgt_generator_create(seed, generator.out()));
  return generator;
}

cgt_generator_state state_of(cgt_generator generator) {
  cgt_generator_state state = {.struct_size = sizeof(state)};
  EXPECT_DONE(cgt_generator_get_state(generator, &state));
  return state;
}

template <typename T>
std::vector<T> contents(cgt_tensor tensor) {
  std::vector<T> values(static_cast<std::size_t>(info_of(tensor).elements), T{-77});
  EXPECT_DONE(cgt_tensor_copy_to_host(tensor, values.data(), values.size() * sizeof(T)));
  return values;
}

class CApiGeneratorsTest : public CStepTest {
 protected:
  void SetUp() override {
    CStepTest::SetUp();
    seed_ = std::random_device()();
    RecordProperty("seed", std::to_string(seed_));
  }
  void TearDown() override {
    CStepTest::TearDown();
    if (HasFailure()) std::fprintf(stderr, "seed %llu\n", static_cast<unsigned long long>(seed_));
  }

  // () -> five uniform numbers, by a fill function of the library.
  OwnedFunction compile_uniform(cgt_generator generator,
                                const cgt_function_options* options = nullptr) {
    return compile(
        [generator](const cgt_tensor*, std::size_t, cgt_tensor* outputs, std::size_t) {
          const std::int64_t size = 5;
          EXPECT_DONE(cgt_tensor_empty(CGT_FLOAT32, 1, &size, nullptr, &outputs[0]));
          return cgt_fill_uniform(generator, outputs[0], nullptr);
        },
        1, options);
  }
  std::vector<float> draw(cgt_function function) {
    OwnedTensor y;
    EXPECT_DONE(cgt_call(function, nullptr, 0, y.out(), 1));
    return values_of(y);
  }

  std::uint64_t seed_ = 0;
};
CGTREE_ON_ALL_DEVICES(CApiGeneratorsTest);

TEST_P(CApiGeneratorsTest, FillsDrawWhatAnEagerProgramDrawsInEveryPhase) {
  const OwnedGenerator generator = make_generator(seed_);
  PhiloxOracle oracle(seed_);
  const cgt_function_options graphed = {.struct_size = sizeof(graphed),
                                        .flags = CGT_FUNCTION_REQUIRE_GRAPH};
  const OwnedFunction function = compile(
      [&](const cgt_tensor*, std::size_t, cgt_tensor* outputs, std::size_t) {
        const std::int64_t shape[] = {7, 3};
        EXPECT_DONE(cgt_tensor_empty(CGT_FLOAT32, 2, shape, nullptr, &outputs[0]));
        EXPECT_DONE(cgt_tensor_empty(CGT_INT64, 1, shape, nullptr, &outputs[1]));
        EXPECT_DONE(cgt_fill_uniform(generator, outputs[0], nullptr));
        return cgt_fill_integers(generator, outputs[1], -5, 50'000, nullptr);
      },
      2, &graphed);
  for (int i = 0; i < 8; ++i) {
    if (i == 4) {
      EXPECT_DONE(cgt_generator_set_seed(generator, seed_));
      oracle.reseed(seed_);
    }
    cgt_tensor made[2];
    EXPECT_DONE(cgt_call(function, nullptr, 0, made, 2));
    const OwnedTensor floats(made[0]), integers(made[1]);
    EXPECT_EQ(values_of(floats), oracle.uniform(21));
    EXPECT_EQ(contents<std::int64_t>(integers), oracle.integers(7, -5, 50'000));
    EXPECT_EQ(state_of(generator).offset, oracle.offset());
  }
  EXPECT_EQ(stats(function)["replays"], 6);
}

TEST_P(CApiGeneratorsTest, KernelsOfACProgramDrawFromWhatIsSetAside) {
  const OwnedGenerator generator = make_generator(seed_);
  PhiloxOracle oracle(seed_);
  std::vector<bool> has_origin;
  const OwnedFunction function =
      compile([&](const cgt_tensor*, std::size_t, cgt_tensor* outputs, std::size_t) {
        const std::int64_t size = 33;
        cgt_philox_range unused, range;
        EXPECT_DONE(cgt_tensor_empty(CGT_FLOAT32, 1, &size, nullptr, &outputs[0]));
        EXPECT_DONE(cgt_generator_reserve(generator, 3, &unused));
        EXPECT_DONE(cgt_generator_reserve(generator, 33, &range));
        has_origin.push_back(range.origin != nullptr);
        launch_draws(current(), range, static_cast<float*>(info_of(outputs[0]).data), size);
        return CGT_OK;
      });
  for (int i = 0; i < 5; ++i) {
    (void)oracle.words(3);
    const std::vector<std::uint32_t> words = oracle.words(33);
    std::vector<float> expected;
    for (std::size_t k = 0; k < words.size(); k += 4)
      expected.push_back(static_cast<float>(words[k] >> 8) / 16777216.0f);
    EXPECT_EQ(draw(function), expected);
  }
  EXPECT_EQ(has_origin, (std::vector<bool>{false, true}));
}

TEST_P(CApiGeneratorsTest, GraphedCallsEqualTheirEagerTwin) {
  const cgt_function_options eagerly = {.struct_size = sizeof(eagerly),
                                        .flags = CGT_FUNCTION_EAGER};
  const OwnedGenerator ours = make_generator(seed_), twins = make_generator(seed_);
  const auto normal = [&](cgt_generator generator, const cgt_function_options* options) {
    return compile(
        [generator](const cgt_tensor*, std::size_t, cgt_tensor* outputs, std::size_t) {
          const std::int64_t size = 9;
          EXPECT_DONE(cgt_tensor_empty(CGT_FLOAT32, 1, &size, nullptr, &outputs[0]));
          return cgt_fill_normal(generator, outputs[0], 2, 0.5f, nullptr);
        },
        1, options);
  };
  const OwnedFunction graphed = normal(ours, nullptr), eager = normal(twins, &eagerly);
  for (int i = 0; i < 5; ++i) {
    const std::vector<float> drawn = draw(graphed);
    EXPECT_EQ(drawn, draw(eager));
    EXPECT_TRUE(std::all_of(drawn.begin(), drawn.end(), [](float x) { return x > -2 && x < 6; }));
    EXPECT_EQ(state_of(ours).offset, state_of(twins).offset);
  }
  EXPECT_EQ(stats(graphed)["replays"], 3);
}

TEST_P(CApiGeneratorsTest, OutsideOfStepsAStreamIsNamed) {
  const OwnedGenerator generator = make_generator(seed_);
  PhiloxOracle oracle(seed_);
  cgt_stream stream = {};
  EXPECT_DONE(cgt_context_stream(context_, &stream));
  const OwnedTensor x = make_tensor(device(), {6});
  const OwnedFunction function = compile_uniform(generator);
  for (int i = 0; i < 4; ++i) {
    EXPECT_DONE(cgt_fill_uniform(generator, x, &stream));
    EXPECT_EQ(values_of(x), oracle.uniform(6));
    EXPECT_EQ(draw(function), oracle.uniform(5));
  }
  EXPECT_FAILS(cgt_fill_uniform(generator, x, nullptr), CGT_INVALID_ARGUMENT, "");
  EXPECT_EQ(state_of(generator).offset, oracle.offset());
}

TEST_P(CApiGeneratorsTest, AStepMayGoBackToAStateOfItsOwnCall) {
  const OwnedGenerator generator = make_generator(seed_);
  PhiloxOracle oracle(seed_);
  std::vector<cgt_generator_state> states;
  const OwnedFunction function = compile(
      [&](const cgt_tensor*, std::size_t, cgt_tensor* outputs, std::size_t) {
        const std::int64_t size = 5;
        states.push_back(state_of(generator));
        for (int i = 0; i < 2; ++i) {
          EXPECT_DONE(cgt_tensor_empty(CGT_FLOAT32, 1, &size, nullptr, &outputs[i]));
          EXPECT_DONE(cgt_generator_set_state(generator, &states.back()));
          EXPECT_DONE(cgt_fill_uniform(generator, outputs[i], nullptr));
        }
        return CGT_OK;
      },
      2);
  for (int i = 0; i < 4; ++i) {
    cgt_tensor made[2];
    EXPECT_DONE(cgt_call(function, nullptr, 0, made, 2));
    const OwnedTensor first(made[0]), second(made[1]);
    EXPECT_EQ(values_of(first), oracle.uniform(5));
    EXPECT_EQ(values_of(second), values_of(first));
  }
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states[0].recording, 0u);
  EXPECT_NE(states[1].recording, 0u);
  EXPECT_FAILS(cgt_generator_set_state(generator, &states[1]), CGT_INVALID_HANDLE,
               "of a step function that this thread is in");
}

TEST_P(CApiGeneratorsTest, ARecordingKeepsAGeneratorThatIsDestroyed) {
  OwnedGenerator generator = make_generator(seed_);
  PhiloxOracle oracle(seed_);
  const OwnedFunction function = compile_uniform(generator);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(draw(function), oracle.uniform(5));
  generator.reset();
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(draw(function), oracle.uniform(5));
}

TEST_P(CApiGeneratorsTest, ImpossibleDrawsAreNamedAndMoveNoGenerator) {
  const OwnedGenerator generator = make_generator(seed_);
  cgt_stream stream = {};
  EXPECT_DONE(cgt_context_stream(context_, &stream));
  const OwnedTensor floats = make_tensor(device(), {4, 6}),
                    ints = make_tensor(device(), {6}, CGT_INT64);
  OwnedTensor turned;
  EXPECT_DONE(cgt_tensor_transpose(floats, 0, 1, turned.out()));
  EXPECT_FAILS(cgt_fill_uniform(generator, ints, &stream), CGT_INVALID_ARGUMENT, "int64");
  EXPECT_FAILS(cgt_fill_normal(generator, turned, 0, 1, &stream), CGT_INVALID_ARGUMENT,
               "not contiguous");
  EXPECT_FAILS(cgt_fill_integers(generator, floats, 0, 1, &stream), CGT_INVALID_ARGUMENT,
               "float32");
  EXPECT_FAILS(cgt_fill_integers(generator, ints, 3, 3, &stream), CGT_INVALID_ARGUMENT,
               "there are none");
  EXPECT_FAILS(cgt_fill_uniform(generator, nullptr, &stream), CGT_INVALID_HANDLE,
               "the tensor is NULL");
  const cgt_stream nowhere = {{CGT_DEVICE_HOST, 77}, 1};
  EXPECT_FAILS(cgt_fill_uniform(generator, floats, &nowhere), CGT_INVALID_ARGUMENT, "77");
  EXPECT_EQ(state_of(generator).offset, 0u);
}

TEST(CApiGeneratorHandlesTest, WrongHandlesAndStructsAreNamed) {
  const std::size_t live = cgt_live_handles();
  cgt_generator generator = nullptr;
  cgt_generator_state state = {.struct_size = sizeof(state)};
  cgt_philox_range range;
  EXPECT_FAILS(cgt_generator_create(1, nullptr), CGT_INVALID_ARGUMENT, "is NULL");
  EXPECT_DONE(cgt_generator_destroy(nullptr));
  EXPECT_DONE(cgt_generator_create(1, &generator));
  EXPECT_EQ(cgt_live_handles(), live + 1);
  EXPECT_FAILS(cgt_tensor_destroy(reinterpret_cast<cgt_tensor>(generator)), CGT_INVALID_HANDLE,
               "the handle of a generator: expected a tensor");
  EXPECT_FAILS(cgt_generator_get_state(generator, nullptr), CGT_INVALID_ARGUMENT, "is NULL");
  EXPECT_FAILS(cgt_generator_set_state(generator, nullptr), CGT_INVALID_ARGUMENT, "is NULL");
  EXPECT_FAILS(cgt_generator_reserve(generator, 1, nullptr), CGT_INVALID_ARGUMENT, "is NULL");
  state.struct_size = 16;
  EXPECT_FAILS(cgt_generator_get_state(generator, &state), CGT_INVALID_ARGUMENT,
               "cgt_generator_state: struct_size is 16: expected 32");
  EXPECT_FAILS(cgt_generator_set_state(generator, &state), CGT_INVALID_ARGUMENT,
               "cgt_generator_state: struct_size is 16: expected 32");
  state = {.struct_size = sizeof(state), .seed = 3, .offset = 4, .recording = 5};
  EXPECT_FAILS(cgt_generator_set_state(generator, &state), CGT_INVALID_HANDLE,
               "cgt_generator_state::recording is 0x5");
  EXPECT_EQ(state_of(generator).seed, 1u);
  EXPECT_DONE(cgt_generator_destroy(generator));
  EXPECT_FAILS(cgt_generator_destroy(generator), CGT_INVALID_HANDLE,
               "a generator that was destroyed");
  EXPECT_FAILS(cgt_generator_set_seed(generator, 1), CGT_INVALID_HANDLE, "destroyed");
  EXPECT_FAILS(cgt_generator_reserve(generator, 1, &range), CGT_INVALID_HANDLE, "destroyed");
  EXPECT_FAILS(cgt_generator_reserve(nullptr, 1, &range), CGT_INVALID_HANDLE,
               "the generator is NULL");
  EXPECT_EQ(cgt_live_handles(), live);
}

}  // namespace
}  // namespace cgtree::testing
