// compile() for PyTorch in C++: results, ownership of memory, and random numbers, on the host
// device with PyTorch's CPU and on CUDA.
#include "bindings/torch/torch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

class TorchTest : public TreeTest {
 protected:
  void SetUp() override {
    TreeTest::SetUp();
    at::manual_seed(seed_);
  }

  at::TensorOptions options(at::ScalarType type = at::kFloat) const {
    return at::TensorOptions(to_torch_device(device())).dtype(type);
  }
  at::Tensor random_input(at::IntArrayRef sizes) { return at::randn(sizes, options()); }
  // Fills a tensor with a value that shows reads of unwritten memory.
  static void poison(const at::Tensor& tensor) { tensor.fill_(-12345); }
};
CGTREE_ON_ALL_DEVICES(TorchTest);

at::Tensor layer(const at::Tensor& x, const at::Tensor& weight) {
  return at::relu(at::matmul(x, weight)) + x;
}

TEST_P(TorchTest, ReplaysReturnWhatEagerCallsReturn) {
  const at::Tensor weight = random_input({16, 16});
  auto f = compile(context(), "f", [=](at::Tensor x) { return layer(layer(x, weight), weight); });

  for (int call = 0; call < 6; ++call) {
    const at::Tensor x = random_input({4, 16});
    const at::Tensor y = f(x);
    EXPECT_TRUE(at::allclose(y, layer(layer(x, weight), weight), 1e-4, 1e-4)) << call;
    poison(y);
  }
  EXPECT_GE(f.stats().replays, 4U);
}

TEST_P(TorchTest, AResultThatIsHeldIsNotOverwritten) {
  auto f = compile(context(), "f", [](at::Tensor x) { return x + 1; });
  std::vector<std::pair<at::Tensor, at::Tensor>> held;
  for (int call = 0; call < 8; ++call) {
    const at::Tensor x = random_input({64});
    held.emplace_back(x + 1, f(x));
  }
  for (const auto& [expected, y] : held)
    EXPECT_TRUE(at::equal(expected, y));
}

TEST_P(TorchTest, TheLastReleaseOfAResultFreesItsSlot) {
  auto f = compile(context(), "f", [](at::Tensor x) { return x + 1; });
  at::Tensor row;
  for (int call = 0; call < 4; ++call) {
    const at::Tensor y = f(random_input({4, 8}));
    row = y[2];  // a view keeps the whole tensor
    EXPECT_EQ(stats().live_outputs, 1U);
  }
  row.reset();
  EXPECT_EQ(stats().live_outputs, 0U);
}

TEST_P(TorchTest, OutputsAreManagedInputsOfOtherFunctions) {
  auto f = compile(context(), "f", [](at::Tensor x) { return x * 2; });
  auto g = compile(context(), "g", [](at::Tensor x) { return x - 3; });
  for (int call = 0; call < 6; ++call) {
    const at::Tensor x = random_input({32});
    const at::Tensor y = f(x);
    EXPECT_TRUE(at::equal(g(y), x * 2 - 3));
    if (call < 3) continue;
    EXPECT_EQ(g.explain(y).outcome, Outcome::kReplay);
    EXPECT_EQ(from_torch(y, {}).storage()->domain() != nullptr, true);
  }
}

TEST_P(TorchTest, ViewsOfInputsAndOutputsKeepTheirLayout) {
  auto f = compile(context(), "f", [](at::Tensor x) {
    return std::pair(x.transpose(0, 1), (x + 1).slice(1, 1, 3));
  });
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = random_input({3, 5});
    const auto [turned, part] = f(x.transpose(0, 1).contiguous().transpose(0, 1));
    EXPECT_TRUE(at::equal(turned, x.transpose(0, 1)));
    EXPECT_TRUE(at::equal(part, (x + 1).slice(1, 1, 3)));
  }
}

TEST_P(TorchTest, ResultsOfEveryForm) {
  auto none = compile(context(), "none", [](at::Tensor x) { x.add_(1); },
                      {.inputs = {{.is_mutated = true}}});
  auto array = compile(context(), "array", [](at::Tensor x) {
    return std::array<at::Tensor, 2>{x + 1, x + 2};
  });
  auto tuple = compile(context(), "tuple", [](at::Tensor x, at::Tensor y) {
    return std::tuple<at::Tensor, at::Tensor>(x + y, x - y);
  });
  auto any = compile(context(), "any", [](std::span<const at::Tensor> inputs) {
    return std::vector<at::Tensor>{inputs[0] + inputs[1], inputs[1] * 2, inputs[0] * 1};
  });
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = random_input({7});
    const at::Tensor y = random_input({7});
    EXPECT_TRUE(at::equal(array(x)[1], x + 2));
    EXPECT_TRUE(at::equal(std::get<1>(tuple(x, y)), x - y));
    EXPECT_TRUE(at::equal(any(std::array{x, y})[1], y * 2));
    const at::Tensor before = x.clone();
    none(x);
    EXPECT_TRUE(at::equal(x, before + 1));
  }
}

TEST_P(TorchTest, EveryElementTypeComesBack) {
  for (const at::ScalarType type :
       {at::kBool, at::kChar, at::kShort, at::kInt, at::kLong, at::kByte, at::kHalf, at::kBFloat16,
        at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble}) {
    auto f = compile(context(), "f", [](at::Tensor x) { return x.clone(); });
    for (int call = 0; call < 4; ++call) {
      const at::Tensor x = at::randint(0, 100, {9}, options()).to(type);
      const at::Tensor y = f(x);
      EXPECT_EQ(y.scalar_type(), type);
      EXPECT_TRUE(at::equal(x, y)) << c10::toString(type);
    }
  }
}

TEST_P(TorchTest, TensorsThatArePassedByValueStandBesideThoseOfPyTorch) {
  auto f =
      compile(context(), "f", [](at::Tensor x, Tensor factor) { return x * to_torch(factor); });
  for (int call = 0; call < 5; ++call) {
    const at::Tensor x = random_input({6});
    const float factor = static_cast<float>(call) + 0.5F;
    EXPECT_TRUE(at::equal(f(x, scalar(factor)), x * factor));
  }
}

TEST_P(TorchTest, BuffersAndKeysAreTakenAsElsewhere) {
  int shift = 0;
  auto f = compile(context(), "f", [&](at::Tensor x) { return x + shift; });
  const at::Tensor buffer = at::empty({10}, options());
  for (int call = 0; call < 8; ++call) {
    const at::Tensor x = random_input({10});
    poison(buffer);
    shift = call % 2;
    const at::Tensor y = f.keyed({{"shift", shift}}).into(buffer)(x);
    EXPECT_EQ(y.data_ptr(), buffer.data_ptr());
    EXPECT_TRUE(at::equal(buffer, x + shift));
  }
  EXPECT_EQ(f.stats().recordings, 2U);
}

TEST_P(TorchTest, BucketsPadAndSlice) {
  auto f = compile(context(), "f", [](at::Tensor x) { return x.cumsum(1); },
                   {.inputs = {{.dynamic = {{0, "batch"}}}},
                    .buckets = {{"batch", {2, 4, 8}}},
                    .outputs = {{.dynamic = {{0, "batch"}}}}});
  for (int call = 0; call < 24; ++call) {
    const at::Tensor x = random_input({1 + call % 8, 5});
    EXPECT_TRUE(at::allclose(f(x), x.cumsum(1)));
  }
  EXPECT_EQ(f.stats().recordings, 3U);
  EXPECT_GT(f.stats().replays, 0U);
}

TEST_P(TorchTest, AnExceptionOfTheFunctionReachesTheCallerAndLeavesNoTrace) {
  bool fails = true;
  auto f = compile(context(), "f", [&](at::Tensor x) {
    const at::Tensor y = x + 1;
    if (fails) throw std::runtime_error("no");
    return y;
  });
  const at::Tensor x = random_input({8});
  EXPECT_THROW(f(x), std::runtime_error);
  EXPECT_EQ(stats().live_outputs, 0U);
  fails = false;
  for (int call = 0; call < 4; ++call)
    EXPECT_TRUE(at::equal(f(x), x + 1));
}

TEST_P(TorchTest, RandomNumbersAreThoseOfEagerCalls) {
  const auto draw = [](const at::Tensor& x) { return at::rand_like(x) + at::bernoulli(x, 0.5); };
  auto f = compile(context(), "f", [&](at::Tensor x) { return draw(x); });
  const at::Tensor x = random_input({100});
  std::vector<at::Tensor> expected;
  at::manual_seed(seed_);
  for (int call = 0; call < 6; ++call) {
    expected.push_back(draw(x));
    if (call % 2 == 0) expected.push_back(at::rand({3}, options()));  // an eager draw in between
    if (call == 3) at::manual_seed(seed_ + 1);
  }
  at::manual_seed(seed_);
  std::size_t next = 0;
  for (int call = 0; call < 6; ++call) {
    EXPECT_TRUE(at::equal(f(x), expected[next++])) << call;
    if (call % 2 == 0) {
      EXPECT_TRUE(at::equal(at::rand({3}, options()), expected[next++]));
    }
    if (call == 3) at::manual_seed(seed_ + 1);
  }
  EXPECT_GE(f.stats().replays, 3U);
}

TEST_P(TorchTest, ModesInTheStepAreThoseOfCompile) {
  const bool before = at::GradMode::is_enabled();
  std::vector<bool> seen;
  at::GradMode::set_enabled(false);
  auto f = compile(context(), "f", [&](at::Tensor x) {
    seen.push_back(at::GradMode::is_enabled());
    return x + 1;
  });
  at::GradMode::set_enabled(true);
  for (int call = 0; call < 3; ++call)
    (void)f(random_input({3}));
  EXPECT_TRUE(at::GradMode::is_enabled());
  at::GradMode::set_enabled(before);
  EXPECT_GE(seen.size(), 2U);
  for (const bool enabled : seen)
    EXPECT_FALSE(enabled);
}

TEST_P(TorchTest, UnsupportedTensorsAreRefusedByName) {
  auto f = compile(context(), "f", [](at::Tensor x) { return x + 1; });
  EXPECT_THROW(f(at::eye(3, options()).to_sparse()), BoundaryError);
  EXPECT_THROW(f(at::empty({1, 1, 1, 1, 1, 1, 1, 1, 1}, options())), BoundaryError);
  EXPECT_THROW(f(at::Tensor()), InvalidArgument);
  EXPECT_EQ(stats().live_outputs, 0U);
}

// A static input is compared only with that of the last call: everything that can change must be
// noticed.
TEST_P(TorchTest, AStaticInputThatHasChangedIsSeen) {
  auto f = compile(context(), "f", [](at::Tensor x, at::Tensor w) { return at::matmul(x, w); },
                   {.inputs = {{}, {.is_static = true}}});
  at::Tensor w = random_input({6, 6});
  for (int call = 0; call < 60; ++call) {
    switch (random_() % 8) {
      case 0:
        w = random_input({6, 6});
        break;
      case 1:
        w = w.t();
        break;
      case 2:
        w.set_(random_input({6, 6}));
        break;
      case 3:
        w = random_input({6, 9}).slice(1, static_cast<std::int64_t>(random_() % 3));
        w = w.slice(1, 0, 6);
        break;
      default:
        w.mul_(0.5).add_(1);
    }
    const at::Tensor x = random_input({2, 6});
    EXPECT_TRUE(at::allclose(f(x, w), at::matmul(x, w), 1e-3, 1e-3)) << call;
  }
  EXPECT_GT(f.stats().replays, 0U);
}

TEST_P(TorchTest, ASecondCallerIsRefusedAndDisturbsNothing) {
  std::promise<void> begun, refused;
  auto f = compile(context(), "f", [&, first = true](at::Tensor x) mutable {
    if (std::exchange(first, false)) {
      begun.set_value();
      refused.get_future().wait();
    }
    return x + 1;
  });
  const at::Tensor x = random_input({5});
  std::thread other([&] {
    begun.get_future().wait();
    EXPECT_THROW(f(x), ConcurrentUse);
    refused.set_value();
  });
  EXPECT_TRUE(at::equal(f(x), x + 1));
  other.join();
  for (int call = 0; call < 3; ++call)
    EXPECT_TRUE(at::equal(f(x), x + 1));
}

TEST_P(TorchTest, AFunctionThatIsCalledInAStepIsAPartOfIt) {
  auto inner = compile(context(), "inner", [](at::Tensor x) { return at::rand_like(x) + x; });
  auto outer = compile(context(), "outer", [&](at::Tensor x) { return inner(x) * 2; });
  const at::Tensor x = random_input({50});
  std::vector<at::Tensor> expected;
  at::manual_seed(seed_);
  for (int call = 0; call < 5; ++call)
    expected.push_back((at::rand_like(x) + x) * 2);
  at::manual_seed(seed_);
  for (const at::Tensor& y : expected)
    EXPECT_TRUE(at::equal(outer(x), y));
}

TEST_P(TorchTest, PrecaptureRecordsBeforeTheFirstCall) {
  auto f = compile(context(), "f", [](at::Tensor x) { return at::rand_like(x) + x; },
                   {.inputs = {{.dynamic = {{0, "batch"}}}},
                    .buckets = {{"batch", {2, 4}}},
                    .outputs = {{.dynamic = {{0, "batch"}}}}});
  const auto report = precapture(f, {}, [&](const CallSizes& sizes) {
    return std::vector<Tensor>{empty({sizes["batch"], 3}, DType::kFloat32, device())};
  });
  EXPECT_EQ(report.entries.size(), 2U);
  const std::uint64_t recordings = f.stats().recordings;
  for (int call = 0; call < 4; ++call)
    EXPECT_TRUE(at::all(f(at::ones({1 + call, 3}, options())) >= 1).item<bool>());
  EXPECT_EQ(f.stats().recordings, recordings);
  EXPECT_EQ(f.stats().replays, 4U);
}

// A random program: calls of functions, with values that are held, dropped and written in between.
TEST_P(TorchTest, RandomProgramsEqualEagerOnes) {
  const at::Tensor weight = random_input({8, 8}) / 8;
  auto f = compile(context(), "f", [&](at::Tensor x) { return layer(x, weight).clamp(-9, 9); });
  auto g = compile(context(), "g",
                   [](at::Tensor x, at::Tensor y) { return std::pair(x - y, at::sin(x).mul_(y)); });
  std::vector<at::Tensor> made, expected;
  for (int i = 0; i < 4; ++i) {
    made.push_back(random_input({4, 8}));
    expected.push_back(made.back().clone());
  }
  for (int step = 0; step < 300; ++step) {
    const std::size_t a = random_() % 4, b = random_() % 4, to = random_() % 4;
    switch (random_() % 4) {
      case 0:
        made[to] = f(made[a]);
        expected[to] = layer(expected[a], weight).clamp(-9, 9);
        break;
      case 1: {
        const auto [first, second] = g(made[a], made[b]);
        const at::Tensor difference = expected[a] - expected[b];
        const at::Tensor product = at::sin(expected[a]) * expected[b];
        made[a] = first;
        made[to] = second;
        expected[a] = difference;
        expected[to] = product;
        break;
      }
      case 2:
        made[to] = random_input({4, 8});
        expected[to] = made[to].clone();
        break;
      default:
        if (made[a].is_same(made[b])) break;
        made[a] = made[a].clone();
        made[a].add_(made[b]).clamp_(-9, 9);
        expected[a] = (expected[a] + expected[b]).clamp_(-9, 9);
    }
    for (std::size_t i = 0; i < 4; ++i)
      ASSERT_TRUE(at::allclose(made[i], expected[i], 1e-3, 1e-3)) << "step " << step;
  }
}

}  // namespace
}  // namespace cgtree::testing
