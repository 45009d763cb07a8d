// PyTorch on a GPU: its streams, its allocator, its graphs, and random numbers that kernels read
// from the device.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "bindings/torch/torch.h"
#include "extensions/verify/verification.h"
#include "extensions/verify/verify.h"
#include "tests/support/inside.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

std::vector<DeviceUnderTest> gpus() {
  std::vector<DeviceUnderTest> devices = devices_under_test();
  std::erase_if(devices, [](const DeviceUnderTest& under_test) {
    return under_test.device.type != DeviceType::kCuda;
  });
  return devices;
}

class TorchCudaTest : public TreeTest {
 protected:
  void SetUp() override {
    TreeTest::SetUp();
    if (!IsSkipped()) at::manual_seed(seed_);
  }
  at::TensorOptions options() const { return at::TensorOptions(to_torch_device(device())); }
  at::Tensor random_input(at::IntArrayRef sizes) { return at::randn(sizes, options()); }
};
INSTANTIATE_TEST_SUITE_P(Devices, TorchCudaTest, ::testing::ValuesIn(gpus()), device_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TorchCudaTest);

TEST_P(TorchCudaTest, MemoryThatAStepFreesIsUsedAgainInTheStep) {
  auto f = compile(context(), "f", [](at::Tensor x) {
    for (int i = 0; i < 100; ++i)
      x = x + 1;
    return x;
  });
  const at::Tensor x = random_input({1 << 20});
  for (int call = 0; call < 4; ++call)
    EXPECT_TRUE(at::allclose(f(x), x + 100, 1e-4, 1e-4));
  EXPECT_LT(stats().pool_reserved_bytes, std::size_t{200} << 20);
}

TEST_P(TorchCudaTest, MemoryFromBeforeTheAllocatorWasInstalledIsFreed) {
  std::vector<at::Tensor> before;
  for (int i = 0; i < 10; ++i)
    before.push_back(random_input({1000 * (i + 1)}));
  auto f = compile(context(), "f", [](at::Tensor x) { return x + 1; });
  for (at::Tensor& x : before) {
    EXPECT_TRUE(at::equal(f(x), x + 1));
    x.reset();
  }
  c10::cuda::CUDACachingAllocator::emptyCache();
  EXPECT_TRUE(at::all(at::zeros({1 << 20}, options()) == 0).item<bool>());
}

TEST_P(TorchCudaTest, MemoryOfARawPointerComesFromTheStepAndMayOutliveIt) {
  void* raw = nullptr;
  auto f = compile(context(), "f", [&](at::Tensor x) {
    void* const data = c10::cuda::CUDACachingAllocator::raw_alloc(4096);
    if (raw == nullptr) {
      raw = data;
    } else {
      c10::cuda::CUDACachingAllocator::raw_delete(data);
    }
    return x + 1;
  });
  const at::Tensor x = random_input({100});
  for (int call = 0; call < 4; ++call)
    EXPECT_TRUE(at::equal(f(x), x + 1));
  EXPECT_TRUE(cgtree::testing::owns(context(), raw));
  c10::cuda::CUDACachingAllocator::raw_delete(raw);
}

TEST_P(TorchCudaTest, CallsAreInOrderOnWhateverStreamIsCurrent) {
  auto f = compile(context(), "f", [](at::Tensor x) { return at::matmul(x, x).tanh(); });
  for (int call = 0; call < 12; ++call) {
    const c10::cuda::CUDAStreamGuard guard(call % 3 == 0 ? c10::cuda::getDefaultCUDAStream()
                                                         : c10::cuda::getStreamFromPool());
    const at::Tensor x = random_input({256, 256}) / 16;
    EXPECT_TRUE(at::allclose(f(x), at::matmul(x, x).tanh(), 1e-3, 1e-3)) << call;
  }
}

TEST_P(TorchCudaTest, AStepMayForkToAnotherStreamAndJoinIt) {
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool();
  auto f = compile(context(), "f", [&](at::Tensor x) {
    at::cuda::CUDAEvent forked, joined;
    forked.record();
    at::Tensor y;
    {
      const c10::cuda::CUDAStreamGuard guard(side);
      forked.block(side);
      y = x;
      for (int i = 0; i < 50; ++i)
        y = y + 1;  // each round frees the previous y on the side stream
      joined.record(side);
    }
    at::Tensor z = x;
    for (int i = 0; i < 50; ++i)
      z = z - 1;
    joined.block(at::cuda::getCurrentCUDAStream());
    return y * z;
  });
  for (int call = 0; call < 8; ++call) {
    const at::Tensor x = random_input({1 << 18});
    at::Tensor y = x, z = x;
    for (int i = 0; i < 50; ++i) {
      y = y + 1;
      z = z - 1;
    }
    EXPECT_TRUE(at::equal(f(x), y * z)) << call;
  }
}

TEST_P(TorchCudaTest, AnOutputMayBeUsedOnAStreamThatPyTorchWasToldOf) {
  auto f = compile(context(), "f", [](at::Tensor x) { return x + 1; });
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool();
  for (int call = 0; call < 20; ++call) {
    const at::Tensor x = random_input({1 << 20});
    at::Tensor y = f(x);
    at::Tensor result;
    {
      at::cuda::CUDAEvent made;
      made.record();
      const c10::cuda::CUDAStreamGuard guard(side);
      made.block(side);
      for (int i = 0; i < 10; ++i)
        result = std::get<0>(y.sort());
      y.record_stream(side.unwrap());
    }
    y.reset();
    (void)f(random_input({1 << 20}));  // may be written into the memory of y
    side.synchronize();
    EXPECT_TRUE(at::equal(result, std::get<0>((x + 1).sort())));
  }
}

TEST_P(TorchCudaTest, ACallBecomesAPartOfAGraphThatPyTorchCaptures) {
  auto f = compile(context(), "f", [](at::Tensor x) { return x * 2 + 1; });
  const at::Tensor x = random_input({100});
  for (int call = 0; call < 3; ++call)
    (void)f(x);
  at::cuda::CUDAGraph graph;
  at::Tensor y;
  {
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
    graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    y = f(x);
    graph.capture_end();
  }
  for (int replay = 0; replay < 3; ++replay) {
    x.normal_();
    y.fill_(-1);
    graph.replay();
    EXPECT_TRUE(at::equal(y, x * 2 + 1));
  }
  at::cuda::device_synchronize();
  graph.reset();
  y.reset();
  (void)context().release_captured();
}

TEST_P(TorchCudaTest, DropoutAndAttentionDrawAsEagerCallsDo) {
  const auto step = [](const at::Tensor& q) {
    return at::dropout(at::scaled_dot_product_attention(q, q, q, {}, 0.1), 0.5, true);
  };
  auto f = compile(context(), "f", step);
  const at::Tensor q = at::randn({2, 4, 64, 64}, options().dtype(at::kHalf));
  std::vector<at::Tensor> expected;
  at::manual_seed(seed_);
  for (int call = 0; call < 8; ++call)
    expected.push_back(step(q));
  at::manual_seed(seed_);
  for (int call = 0; call < 8; ++call)
    EXPECT_TRUE(at::equal(f(q), expected[static_cast<std::size_t>(call)])) << call;
  EXPECT_GE(f.stats().replays, 5U);
}

TEST_P(TorchCudaTest, VerificationRepeatsWhatAReplayDrew) {
  make_context({.extensions = {verify({.every = 1})}});
  auto f = compile(context(), "f", [](at::Tensor x) { return x + at::rand_like(x); });
  const at::Tensor x = random_input({1000});
  for (int call = 0; call < 6; ++call)
    EXPECT_NO_THROW((void)f(x));
  EXPECT_GT(verification_of(context()).functions.at(0).verified, 0U);
}

TEST_P(TorchCudaTest, AFunctionThatBeginsToDrawIsRecordedAnew) {
  bool draws = false;
  auto f =
      compile(context(), "f", [&](at::Tensor x) { return draws ? x + at::rand_like(x) : x + 1; });
  const at::Tensor x = random_input({64});
  (void)f(x);
  draws = true;
  at::manual_seed(seed_);
  const at::Tensor a = f(x), b = f(x), c = f(x);
  at::manual_seed(seed_);
  EXPECT_TRUE(at::equal(a, x + at::rand_like(x)));
  EXPECT_TRUE(at::equal(b, x + at::rand_like(x)));
  EXPECT_TRUE(at::equal(c, x + at::rand_like(x)));
}

TEST_P(TorchCudaTest, ContextsOfTwoThreadsRunSideBySide) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(2, 0);
  for (std::size_t k = 0; k < 2; ++k) {
    threads.emplace_back([&, k] {
      const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
      Context own(device());
      auto f = compile(own, "f", [](at::Tensor x) { return at::matmul(x, x.t()).relu(); });
      for (int call = 0; call < 50; ++call) {
        const at::Tensor x = at::ones({64, 32 + call % 3}, options()) * (call + 1);
        const at::Tensor expected = at::matmul(x, x.t()).relu();
        wrong[k] += !at::allclose(f(x), expected);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace cgtree::testing
