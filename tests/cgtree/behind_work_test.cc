// Warm-ups, recordings and evictions while earlier work still runs: the caller does not wait.
#include <gtest/gtest.h>

#include <cmath>
#include <future>
#include <span>
#include <string>
#include <vector>

#include "tests/support/gate.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

class BehindWorkTest : public TreeTest {
 protected:
  using Function = CompiledFunction<void(std::span<const Tensor>)>;
  static constexpr std::size_t kInputs = 300;  // more than fit into one node

  // A function whose inputs are copied in and back.
  Function doubling(std::size_t most_recordings) {
    CompileOptions options{.max_recordings = most_recordings, .at_limit = AtLimit::kEvict};
    options.inputs.assign(kInputs, {.is_mutated = true});
    return compile(
        context(), "double",
        [](std::span<const Tensor> inputs) {
          for (const Tensor& x : inputs)
            update(x, 2, 0);
        },
        options);
  }
  void make_inputs() {
    for (std::size_t i = 0; i < kInputs; ++i) {
      before_.push_back(random_floats(1 + i % 3));
      inputs_.push_back(tensor({static_cast<std::int64_t>(before_.back().size())}, before_.back()));
    }
  }
  void expect_doubled(int times) {
    for (std::size_t i = 0; i < kInputs; ++i)
      ASSERT_EQ(values(inputs_[i]), affine_of(before_[i], std::exp2f(times), 0)) << i;
  }
  // Calls f `times` times with the key: the first call warms up, the second records, others replay.
  void call(const Function& f, std::int64_t key, int times) const {
    for (int i = 0; i < times; ++i)
      f.keyed({{"key", key}})(inputs_);
  }

  std::vector<std::vector<float>> before_;
  std::vector<Tensor> inputs_;
};
INSTANTIATE_TEST_SUITE_P(Devices, BehindWorkTest, ::testing::ValuesIn(devices_that_work_later()),
                         device_name);

TEST_P(BehindWorkTest, AWarmUpReturnsWhileEarlierWorkRuns) {
  const Function f = doubling(/*most_recordings=*/8);
  make_inputs();
  call(f, 1, 3);  // loads the kernels and fills the pools
  context().synchronize();
  {
    Gate gate(context().stream());
    call(f, 2, 1);
    EXPECT_TRUE(gate.is_closed());
  }
  EXPECT_EQ(f.stats().warm_ups, 2u);
  expect_doubled(4);
}

TEST_P(BehindWorkTest, ARecordingReturnsWhileEarlierWorkRuns) {
  const Function f = doubling(/*most_recordings=*/8);
  make_inputs();
  call(f, 1, 3);
  call(f, 2, 1);
  context().synchronize();
  {
    Gate gate(context().stream());
    call(f, 2, 2);
    EXPECT_TRUE(gate.is_closed());
  }
  EXPECT_EQ(f.stats().recordings, 2u);
  expect_doubled(6);
}

TEST_P(BehindWorkTest, ACallThatEvictsARecordingInFlightReturns) {
  const Function f = doubling(/*most_recordings=*/1);
  make_inputs();
  call(f, 2, 1);
  call(f, 1, 3);
  context().synchronize();
  {
    Gate gate(context().stream());
    call(f, 1, 1);
    call(f, 2, 2);
    EXPECT_TRUE(gate.is_closed());
  }
  EXPECT_EQ(f.stats().evictions, 1u);
  EXPECT_EQ(f.stats().replays, 3u);
  expect_doubled(7);
}

}  // namespace
}  // namespace cgtree::testing
