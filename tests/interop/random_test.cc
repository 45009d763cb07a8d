// Tensors of random numbers: the numbers, the blocks that they use, the refusals.
#include "interop/random/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "interop/device/stream.h"
#include "interop/exchange/cuda_array_interface.h"
#include "interop/tensor/empty.h"
#include "tests/support/devices.h"
#include "tests/support/philox_oracle.h"

namespace cgtree::testing {
namespace {

class RandomTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    stream_.emplace(device(), StreamKind::kBlocking);
    scope_.emplace(*stream_);
    seed_ = std::random_device()();
    RecordProperty("seed", std::to_string(seed_));
  }
  Device device() const { return GetParam().device; }

  std::optional<Stream> stream_;
  std::optional<StreamScope> scope_;
  unsigned seed_ = 0;
};

// Row 4.3 graph_rng_distributions, eagerly.
TEST_P(RandomTest, UniformNumbersAndIntegersAreTheSequenceOfTheSeed) {
  const Generator generator(seed_);
  PhiloxOracle oracle(seed_);
  for (const std::int64_t count : {1, 3, 4, 5, 1000, 100'003}) {
    EXPECT_EQ(uniform({count}, generator, device()).to_vector<float>(), oracle.uniform(count));
    EXPECT_EQ(random_integers({count}, -3, 12, generator, device()).to_vector<std::int64_t>(),
              oracle.integers(count, -3, 12));
    EXPECT_EQ(generator.state().offset, oracle.offset());
  }
}

TEST_P(RandomTest, IntegersMaySpanTheWholeType) {
  const Generator generator(seed_);
  PhiloxOracle oracle(seed_);
  const auto low = std::numeric_limits<std::int64_t>::min();
  const auto high = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(random_integers({64}, low, high, generator, device()).to_vector<std::int64_t>(),
            oracle.integers(64, low, high));
}

TEST_P(RandomTest, NormalNumbersAreTheTransformOfTheSameWords) {
  const Generator generator(seed_);
  PhiloxOracle oracle(seed_);
  const std::vector<float> drawn = normal({1002}, generator, device()).to_vector<float>();
  const std::vector<std::uint32_t> words = oracle.words(251);
  ASSERT_EQ(generator.state().offset, oracle.offset());
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    const double radius = std::sqrt(-2 * std::log((words[i & ~1u] + 1.0) / 4294967296.0));
    const double angle = 2 * M_PI * ((words[i | 1u] >> 8) / 16777216.0);
    EXPECT_NEAR(drawn[i], radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)), 1e-4) << i;
  }
}

TEST_P(RandomTest, NormalNumbersHaveTheMomentsAskedFor) {
  const Generator generator(seed_);
  const Tensor tensor = empty({200'000}, DType::kFloat32, device());
  fill_normal(tensor, generator, 3, 2);
  double sum = 0;
  double squares = 0;
  for (const float value : tensor.to_vector<float>()) {
    sum += value;
    squares += (value - 3.0) * (value - 3.0);
  }
  // Seven standard errors.
  EXPECT_NEAR(sum / 200'000, 3, 7 * 2 / std::sqrt(200'000.0));
  EXPECT_NEAR(squares / 200'000, 4, 7 * 4 * std::sqrt(2 / 200'000.0));
}

TEST_P(RandomTest, NothingIsDrawnForNoElements) {
  const Generator generator(seed_);
  EXPECT_EQ(uniform({0, 4}, generator, device()).elements(), 0);
  EXPECT_EQ(generator.state().offset, 0u);
}

TEST_P(RandomTest, AFillThatIsRefusedDrawsNothing) {
  const Generator generator(seed_);
  const Tensor floats = empty({4, 6}, DType::kFloat32, device());
  EXPECT_THROW(fill_uniform(floats.transpose(0, 1), generator), InvalidArgument);
  EXPECT_THROW(fill_integers(floats, 0, 2, generator), InvalidArgument);
  CudaArrayInterface array = to_cuda_array_interface(floats, {});
  array.read_only = true;
  const Tensor fixed =
      from_cuda_array_interface(array, nullptr, {.consumer = *stream_, .device = device()});
  EXPECT_THROW(fill_uniform(fixed, generator), InvalidArgument);
  EXPECT_THROW((void)random_integers({2}, 5, 5, generator, device()), InvalidArgument);
  if (device() != Device::host()) {
    EXPECT_THROW((void)normal({2}, generator, Device::host()), InvalidArgument);
  }
  EXPECT_EQ(generator.state().offset, 0u);
}

INSTANTIATE_TEST_SUITE_P(Devices, RandomTest, ::testing::ValuesIn(devices_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree::testing
