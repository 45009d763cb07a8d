// Branches and loops of the wrapper for C++17: lambdas as bodies, and their exceptions.
#include <array>
#include <chrono>
#include <new>
#include <random>
#include <stdexcept>

#include "bindings/c/cgtree.hpp"
#include "tests/c_api/flow_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;

class CppControlFlowTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }
  Device device() const { return GetParam().device; }
  cgt::Tensor tensor(const std::vector<float>& values) const {
    return cgt::Tensor(make_tensor_of(device(), values).release());
  }
  cgt::Tensor flags(const std::vector<std::int32_t>& values) const {
    return cgt::Tensor(make_flags(device(), values).release());
  }
  // Returns x + a * x, in memory of the step or of the body.
  static cgt::Tensor sum(cgt::TensorRef x, float a) {
    cgt::Tensor y(copy_of(x.get()));
    add_to(y.get(), a, x.get());
    return y;
  }
};
CGTREE_ON_ALL_DEVICES(CppControlFlowTest);

TEST_P(CppControlFlowTest, LambdasAreBodies) {
  const cgt::Context context(c_device(device()));
  const cgt::Function<2> f(context, "f", [](cgt::Span<cgt::TensorRef> in) {
    cgt::Tensor y = cgt::branch(
        in[1].slice(0, 0, 1), [&] { return sum(in[0], 1); }, [&] { return in[0].share(); });
    auto [first, second] = cgt::choose(
        in[1].slice(0, 1, 2),
        [&] {
          return std::array{sum(y, 2), in[0].share()};
        },
        [&] {
          return std::array{sum(y, 3), sum(in[0], 1)};
        });
    cgt::branch(in[1].slice(0, 0, 1), [&] { add_to(first.get(), 1, in[0].get()); });
    cgt::choose(
        in[1].slice(0, 1, 2), [&] { add_to(first.get(), 10, in[0].get()); }, [] {},
        [&] { add_to(first.get(), 20, in[0].get()); });
    return std::array{std::move(first), std::move(second)};
  });
  for (int i = 0; i < 9; ++i) {
    const int taken = i % 2, index = i % 4;  // 3: the last body; without results, no body
    const cgt::Tensor x = tensor({1, 2});
    const auto [first, second] = f(x, flags({taken, index}));
    float expected = static_cast<float>((taken != 0 ? 2 : 1) * (index == 0 ? 3 : 4) + taken);
    expected += index == 0 ? 10.0f : index == 2 ? 20.0f : 0.0f;
    EXPECT_THAT(first.copy_to_host<float>(), ElementsAre(expected, 2 * expected)) << i;
    EXPECT_THAT(second.copy_to_host<float>(), index == 0 ? ElementsAre(1, 2) : ElementsAre(2, 4));
  }
  EXPECT_EQ(f.last_outcome(), CGT_REPLAYED);
}

TEST_P(CppControlFlowTest, ALoopReturnsTheNumberOfItsRounds) {
  const cgt::Context context(c_device(device()));
  const cgt::Function<2> f(context, "f", [](cgt::Span<cgt::TensorRef> in) {
    cgt::Tensor y = sum(in[0], 0);
    const cgt::Tensor all(copy_of(in[1].get()));
    cgt::Tensor rounds = cgt::loop(5, [&] {
      add_to(y.get(), 1, in[0].get());
      return cgt::Tensor(next_flag(all.get()));
    });
    const cgt::Tensor first = all.slice(0, 0, 1);  // 0, unless the limit was reached
    (void)cgt::loop(2, [&]() -> cgt::TensorRef {
      add_to(y.get(), 1, in[0].get());
      return first;
    });
    return std::array{std::move(y), std::move(rounds)};
  });
  for (int i = 0; i < 6; ++i) {
    const std::int32_t second = i % 2;
    const auto [y, rounds] = f(tensor({2}), flags({0, 1, second, 0, 0, 0}));
    EXPECT_EQ(number_of(rounds.get()), 2 + second);
    EXPECT_THAT(y.copy_to_host<float>(), ElementsAre(2.0f * (4 + second)));
  }
  EXPECT_EQ(f.last_outcome(), CGT_REPLAYED);
}

TEST_P(CppControlFlowTest, LambdasDrawFromTheGeneratorsThatAreGiven) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  const cgt::Context context(c_device(device()));
  const cgt::Generator generator(seed), other(seed);
  const auto step = [&](cgt::Span<cgt::TensorRef> in) {
    const auto drawn = [&](const cgt::Generator& from) {
      cgt::Tensor y(copy_of(in[0].get()));
      cgt::check(cgt_fill_uniform(from.get(), y.get(), nullptr));
      return y;
    };
    cgt::Tensor sum = drawn(other);
    const cgt::Tensor flags(copy_of(in[1].get()));
    (void)cgt::loop(4, {generator, other}, [&] {
      cgt::Tensor flag(next_flag(flags.get()));
      add_to(sum.get(), 1, drawn(generator).get());
      cgt::branch(flag, {other}, [&] { add_to(sum.get(), 1, drawn(other).get()); });
      return flag;
    });
    cgt::choose(
        in[1].slice(0, 0, 1), {other}, [&] { add_to(sum.get(), 1, drawn(other).get()); }, [] {});
    cgt::Tensor one = cgt::branch(
        in[1].slice(0, 0, 1), {generator}, [&] { return drawn(generator); },
        [&] { return in[0].share(); });
    cgt::Tensor two = cgt::choose(
        in[1].slice(0, 0, 1), {generator, other}, [&] { return drawn(generator); },
        [&] { return drawn(other); });
    return std::array{std::move(sum), std::move(one), std::move(two)};
  };
  cgt::Options eagerly;
  eagerly.rest.flags = CGT_FUNCTION_EAGER;
  const cgt::Function<3> eager(context, "eager", step, eagerly), f(context, "f", step);
  for (int i = 0; i < 6; ++i) {
    const cgt::Tensor x = tensor({-1, -1, -1}), given = flags({i % 2, 1, i % 3, 0, 0});
    std::vector<std::vector<float>> found[2];
    for (int k = 0; k < 2; ++k) {
      generator.set_seed(seed + static_cast<std::uint64_t>(i));
      other.set_seed(seed - static_cast<std::uint64_t>(i) - 1);
      for (const cgt::Tensor& one : (k == 0 ? eager : f)(x, given))
        found[k].push_back(one.copy_to_host<float>());
    }
    EXPECT_EQ(found[0], found[1]) << i;
    EXPECT_EQ(found[0][1] == std::vector<float>(3, -1.0f), i % 2 == 0);
    EXPECT_THAT(found[0][2], ::testing::Each(::testing::Ge(0)));
  }
  EXPECT_EQ(f.last_outcome(), CGT_REPLAYED);
}

TEST_P(CppControlFlowTest, ALoopHandsOutRowsUntilItIsStopped) {
  const cgt::Context context(c_device(device()));
  const cgt::LoopStream rows(c_device(device()), 2 * sizeof(float), 8);
  const cgt::Generator generator(3);
  const cgt::Function<> f(context, "f", [&](cgt::Span<cgt::TensorRef> in) {
    const cgt::Tensor y = sum(in[0], 0);
    return cgt::loop(4, rows, {generator}, [&] {
      add_to(y.get(), 1, in[0].get());
      return cgt::LoopRound{in[1].share(), y.share()};
    });
  });
  float got[2] = {};
  EXPECT_FALSE(rows.next(got, sizeof(got), std::chrono::microseconds(0)));
  EXPECT_FALSE(rows.next(got, sizeof(got), std::chrono::microseconds(-5)));
  for (std::uint64_t i = 1; i <= 6; ++i) {
    const auto first = static_cast<float>(i);
    const bool is_stopped = i % 2 == 0;
    if (is_stopped) rows.stop();
    const cgt::Tensor rounds = f(tensor({first, 1}), flags({1}));
    for (int k = 0; k < (is_stopped ? 1 : 4); ++k) {
      const auto row = rows.next(got, sizeof(got), std::chrono::seconds(5));
      ASSERT_TRUE(row);
      EXPECT_THAT(got, ElementsAre(first * static_cast<float>(k + 2), k + 2));
      EXPECT_EQ(row->loop, i);
      EXPECT_EQ(row->round, k);
      EXPECT_EQ(row->bytes, sizeof(got));
      EXPECT_EQ(row->is_last != 0, k == 3 || is_stopped);
    }
    EXPECT_FALSE(rows.next(got, sizeof(got), std::chrono::microseconds(0)));
    EXPECT_EQ(number_of(rounds.get()), is_stopped ? 1 : 4);
  }
  EXPECT_EQ(f.last_outcome(), CGT_REPLAYED);
  EXPECT_THROW((void)cgt::loop(2, rows, []() -> cgt::LoopRound { throw std::bad_alloc(); }),
               cgt::Error);  // outside a step, without a current stream
  const cgt::Stream stream(c_device(device()));
  const cgt::StreamScope scope(stream);
  EXPECT_THROW((void)cgt::loop(2, rows, []() -> cgt::LoopRound { throw std::bad_alloc(); }),
               std::bad_alloc);
}

// The exception keeps its type: it does not pass through the library.
TEST_P(CppControlFlowTest, ExceptionsOfLambdasReachTheCaller) {
  cgt::Stream stream(c_device(device()));
  const cgt::StreamScope scope(stream);
  const cgt::Tensor yes = flags({1}), index = flags({1});
  EXPECT_THROW(cgt::branch(yes, [] { throw std::out_of_range("no such token"); }),
               std::out_of_range);
  EXPECT_THROW(cgt::branch(
                   yes, [] { throw std::bad_alloc(); }, [] {}),
               std::bad_alloc);
  EXPECT_THROW(cgt::choose(
                   index, [] {}, [] { throw std::domain_error(""); }),
               std::domain_error);
  EXPECT_THROW((void)cgt::loop(2, [&]() -> cgt::Tensor { throw std::logic_error(""); }),
               std::logic_error);
  try {
    cgt::branch(yes, [] { cgt::check(cgt_context_mark_step(nullptr)); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const cgt::Error& error) {
    EXPECT_EQ(error.status(), CGT_INVALID_HANDLE);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("then() of branch(): the context is NULL"));
  }
}

TEST_P(CppControlFlowTest, AStepFunctionMayCatchWhatABodyThrows) {
  const cgt::Context context(c_device(device()));
  bool throws = true;
  int caught = 0;
  const cgt::Function<> f(context, "f", [&](cgt::Span<cgt::TensorRef> in) {
    try {
      return cgt::branch(
          in[1],
          [&] {
            if (throws) throw std::out_of_range("no such token");
            return sum(in[0], 1);
          },
          [&] { return in[0].share(); });
    } catch (const std::out_of_range&) {
      ++caught;
      throw;
    }
  });
  const cgt::Tensor x = tensor({1}), yes = flags({1});
  for (int i = 0; i < 2; ++i) {
    throws = true;
    try {
      (void)f(x, yes);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const cgt::Error& error) {
      EXPECT_EQ(error.status(), CGT_STEP_THREW);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("no such token"));
    }
    throws = false;
    EXPECT_THAT(f(x, yes).copy_to_host<float>(), ElementsAre(2));
  }
  EXPECT_GE(caught, 2);
}

}  // namespace
}  // namespace cgtree::testing
