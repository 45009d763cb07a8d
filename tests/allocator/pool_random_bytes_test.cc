// The fuzzer's decoding, and thousands of random inputs for builds without the fuzzer.
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/allocator/pool_fuzz_input.h"

namespace cgtree {
namespace {

bool same(const Step& left, const Step& right) {
  return left.action == right.action && left.value == right.value;
}

TEST(PoolRandomBytesTest, AnyBytesAreSteps) {
  const std::vector<Step> steps =
      steps_of(std::vector<std::uint8_t>{0, 1, 2, 3, 255, 0, 0, 0, 3, 9});

  ASSERT_EQ(steps.size(), 3u);
  EXPECT_TRUE(same(steps[0], {Action::kAllocate, 0x030201}));
  EXPECT_TRUE(same(steps[1], {static_cast<Action>(255 % 13), 0}));
  EXPECT_TRUE(same(steps[2], {Action::kCheckpoint, 9}));
  EXPECT_TRUE(steps_of({}).empty());
}

TEST(PoolRandomBytesTest, LongInputsAreCut) {
  EXPECT_EQ(steps_of(std::vector<std::uint8_t>(100'000)).size(), 256u);
}

TEST(PoolRandomBytesTest, PoolAndModelAgree) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::uint8_t> bytes(random() % 200);
    for (std::uint8_t& byte : bytes)
      byte = static_cast<std::uint8_t>(random());
    try {
      take_steps_of(bytes);
    } catch (const std::logic_error& error) {
      FAIL() << "input " << round << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace cgtree
