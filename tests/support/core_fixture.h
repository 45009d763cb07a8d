// TreeTest: a context on each device, with a check at the end that nothing is left. It uses the
// core only.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "cgtree/compile.h"
#include "cgtree/context.h"
#include "interop/random/generator.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/tensor.h"
#include "tests/support/counting_segments.h"
#include "tests/support/devices.h"
#include "tests/support/inside.h"
#include "tests/support/steps.h"

namespace cgtree::testing {

class TreeTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    seed_ = std::random_device()();
    random_.seed(seed_);
    RecordProperty("seed", std::to_string(seed_));
    make_context({});
  }

  // Objects of the test's body are destroyed by now: requires that the engine, the outputs and the
  // pools' segments are, too.
  void TearDown() override;

  void make_context(ContextOptions options) {
    context_.reset();
    options.pools_grow_in_place = pools_grow_in_place();
    segments_ = std::make_unique<CountingSegments>(device(), options.pools_grow_in_place
                                                                 ? CountingSegments::Kind::kGrowing
                                                                 : CountingSegments::Kind::kFixed);
    options.segments = segments_.get();
    context_.emplace(device(), options);
  }

  // CGTREE_POOLS_GROW_IN_PLACE=1 runs the same tests on pools that grow in place.
  static bool pools_grow_in_place() {
    const char* const value = std::getenv("CGTREE_POOLS_GROW_IN_PLACE");
    return value != nullptr && std::string_view(value) == "1";
  }

  Device device() const { return GetParam().device; }
  Context& context() { return *context_; }
  // Aborts if an invariant of the context does not hold.
  void validate();
  std::size_t recording_count();
  // Returns true if the address lies in a pool of the context.
  bool owns(const void* address);
  // Tests that look further inside than inside.h include cgtree/tree/engine.h.
  std::shared_ptr<Engine> engine() { return context_->share_engine(); }
  ContextStats stats() { return context_->stats(); }

  // Numbers from [-1, 1), multiples of 2^-23, so that sums and small multiples are exact.
  std::vector<float> random_floats(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values)  // a distribution would be ten times slower without inlining
      value = static_cast<float>(random_() >> 8) * 0x1p-23F - 1;
    return values;
  }
  Tensor tensor(const Shape& shape, std::span<const float> values) {
    return from_host(shape, values, device());
  }
  Tensor random_tensor(const Shape& shape) {
    return tensor(shape, random_floats(shape.elements()));
  }

  // Values after all work is done.
  std::vector<float> values(const Tensor& tensor) { return tensor.to_vector<float>(); }
  static std::vector<float> affine_of(std::vector<float> x, float scale, float shift) {
    for (float& value : x)
      value = scale * value + shift;
    return x;
  }

  // Requires: f computes 2 x, and returns it and its last three of four elements in memory outside
  // the pools. Expects that these results stay, and that no capture becomes a recording.
  template <typename Function>
  void expect_results_elsewhere_stay(const Function& f) {
    std::vector<std::pair<Tensor, Tensor>> held;
    std::vector<std::vector<float>> expected;
    for (int call = 0; call < 5; ++call) {
      const std::vector<float> x = random_floats(4);
      held.push_back(f(tensor({4}, x)));
      expected.push_back(affine_of({x[1], x[2], x[3]}, 2, 0));
    }
    context().synchronize();
    for (std::size_t i = 0; i < held.size(); ++i)
      EXPECT_EQ(values(held[i].second), expected[i]) << i;
    EXPECT_EQ(f.stats().recordings, 0u);
    EXPECT_EQ(f.stats().skipped(SkipReason::kCaptureFailed), 4u);
  }

  // Warms up, records and replays.
  template <typename F, typename... Inputs>
  void prepare(const F& f, const Inputs&... inputs) {
    for (int call = 0; call < 3; ++call)
      (void)f(inputs...);
    context().synchronize();
  }

  unsigned seed_ = 0;
  std::mt19937 random_;
  std::unique_ptr<CountingSegments> segments_;
  std::optional<Context> context_;
  std::size_t persistent_ = 0;  // storages that a test leaks on purpose
};

inline std::string device_name(const ::testing::TestParamInfo<DeviceUnderTest>& info) {
  return info.param.name;
}

}  // namespace cgtree::testing

#define CGTREE_ON_ALL_DEVICES(suite)                                                     \
  INSTANTIATE_TEST_SUITE_P(Devices, suite,                                               \
                           ::testing::ValuesIn(::cgtree::testing::devices_under_test()), \
                           ::cgtree::testing::device_name)
