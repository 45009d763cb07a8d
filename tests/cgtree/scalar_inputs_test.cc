// Numbers and structs on the host as inputs, which are passed by value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "extensions/watch/monitor.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <std::size_t N>
struct Block {
  std::array<float, N> numbers;
};

// A step block of floats.
Tensor from_block(const Tensor& block) {
  return Tensor(block.storage(), block.byte_offset(),
                {static_cast<std::int64_t>(block.bytes() / sizeof(float))}, DType::kFloat32);
}

// A context on a device other than that of the scalars, even without a GPU.
class ScalarInputsTest : public TreeTest {
 protected:
  void SetUp() override {
    TreeTest::SetUp();
    if (IsSkipped()) return;
    elsewhere_ = device() == Device::host() ? Device::host(1) : device();
    context_elsewhere_.emplace(elsewhere_);
  }
  void TearDown() override {
    context_elsewhere_.reset();
    TreeTest::TearDown();
  }
  Context& elsewhere() { return *context_elsewhere_; }
  Tensor there(const Shape& shape, std::span<const float> values) {
    return from_host(shape, values, elsewhere_);
  }
  std::vector<std::string> treatments(Context& context) {
    const auto snapshot = nlohmann::json::parse(snapshot_json(context));
    std::vector<std::string> found;
    for (const auto& input : snapshot.at("nodes").at(0).at("inputs"))
      found.push_back(input.at("treatment"));
    return found;
  }

  // Each call has a new struct at a new address, without a wait for the device in between.
  template <std::size_t N>
  void expect_blocks_arrive() {
    CompiledFunction f =
        compile(elsewhere(), "f", [](Tensor block) { return affine(from_block(block), 2, 1); });
    std::vector<std::pair<Tensor, std::vector<float>>> made;
    for (int call = 0; call < 40; ++call) {
      auto block = std::make_unique<Block<N>>();
      std::vector<float> expected;
      for (float& number : block->numbers)
        expected.push_back(2 * (number = static_cast<float>(random_() % 1000)) + 1);
      made.emplace_back(f(step_block(*block)), std::move(expected));
      block->numbers.fill(NAN);
      if (made.size() == 8) made.erase(made.begin());
    }
    for (const auto& [y, expected] : made)
      EXPECT_EQ(values(y), expected) << N;
    EXPECT_GT(f.stats().replays, 20u);
  }

  Device elsewhere_;
  std::optional<Context> context_elsewhere_;
};
CGTREE_ON_ALL_DEVICES(ScalarInputsTest);

// Rows 121 to 124 graph_partition_cpu_scalar1 to 4: updated at each call, one node.
// Acceptance: trees 121.
TEST_P(ScalarInputsTest, EachCallSeesItsValue) {
  CompiledFunction f = compile(elsewhere(), "f", [](Tensor x, Tensor s) { return add(x, s); });
  const std::vector<float> x = random_floats(4);
  const Tensor given = there({4}, x);
  for (int call = 0; call < 6; ++call)
    EXPECT_EQ(values(f(given, scalar(2.0f * call))), affine_of(x, 1, 2.0f * call));

  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(f.stats().replays, 4u);
  EXPECT_EQ(f.stats().skipped(), 0u);
  EXPECT_EQ(treatments(elsewhere()), (std::vector<std::string>{"copied", "value"}));
}

// Acceptance: trees 130.
TEST_P(ScalarInputsTest, TheStepFunctionSeesATensorOnItsDevice) {
  std::vector<Device> seen;
  const auto step = [&](Tensor x, Tensor s) {
    seen.push_back(s.device());
    EXPECT_EQ(s.rank(), 0);
    return add(x, s);
  };
  CompiledFunction f = compile(elsewhere(), "f", step);
  CompiledFunction off = compile(elsewhere(), "off", step, {.enabled = false});
  CompiledFunction outer =
      compile(elsewhere(), "outer", [&](Tensor x) { return f(x, scalar(3.0f)); });
  const std::vector<float> x = random_floats(4);
  for (int call = 0; call < 4; ++call) {
    EXPECT_EQ(values(f(there({4}, x), scalar(1.0f))), affine_of(x, 1, 1));
    EXPECT_EQ(values(off(there({4}, x), scalar(2.0f))), affine_of(x, 1, 2));
    EXPECT_EQ(values(outer(there({4}, x))), affine_of(x, 1, 3));
  }
  ASSERT_EQ(seen.size(), 8u);  // f 2, off 4, in outer 2
  for (const Device device : seen)
    EXPECT_EQ(device, elsewhere_);
}

// Row 127 graph_partition_cpu_scalar_multiple: several share one node.
// Acceptance: trees 127.
TEST_P(ScalarInputsTest, SeveralShareOneNode) {
  CompiledFunction f = compile(elsewhere(), "f", [](Tensor x, Tensor a, Tensor b, Tensor c) {
    return add(add(add(x, a), b), c);
  });
  for (int call = 0; call < 4; ++call) {
    const auto n = static_cast<float>(call);
    const Tensor zero = there({2}, std::vector<float>{0, 0});
    EXPECT_EQ(values(f(zero, scalar(n), scalar(10 * n), scalar(100 * n)))[1], 111 * n);
  }
  const auto snapshot = nlohmann::json::parse(snapshot_json(elsewhere()));
  EXPECT_EQ(snapshot.at("nodes").at(0).at("graph_nodes"), 4u);  // the root, and three sums
}

// Row 131 graph_partition_cpu_scalar_used_as_output.
// Acceptance: trees 130.
TEST_P(ScalarInputsTest, AScalarThatIsReturnedIsATensorOfTheDevice) {
  CompiledFunction f = compile(elsewhere(), "f", [](Tensor s) { return s; });
  std::vector<Tensor> held;
  for (int call = 0; call < 5; ++call)
    held.push_back(f(scalar(1.5f * call)));
  for (int call = 0; call < 5; ++call) {
    EXPECT_EQ(held[call].device(), elsewhere_);
    EXPECT_EQ(values(held[call]), std::vector<float>{1.5f * call});
  }
}

// Acceptance: trees 126.
TEST_P(ScalarInputsTest, EveryElementTypeArrivesWhole) {
  CompiledFunction f = compile(elsewhere(), "f", [](std::span<const Tensor> s) {
    return std::vector<Tensor>(s.begin(), s.end());
  });
  for (int call = 1; call <= 4; ++call) {
    const std::vector<Tensor> outputs = f(std::vector{
        scalar(0.5 * call), scalar(std::int64_t{-5'000'000'000} * call), scalar(std::int8_t(-call)),
        scalar(call % 2 == 0), scalar(std::uint16_t(60000 + call))});
    EXPECT_EQ(outputs[0].to_vector<double>()[0], 0.5 * call);
    EXPECT_EQ(outputs[1].to_vector<std::int64_t>()[0], std::int64_t{-5'000'000'000} * call);
    EXPECT_EQ(outputs[2].to_vector<std::int8_t>()[0], -call);
    std::uint8_t flag = 9;
    outputs[3].copy_to_host(&flag, 1);
    EXPECT_EQ(flag, call % 2 == 0);
    EXPECT_EQ(outputs[4].to_vector<std::uint16_t>()[0], 60000 + call);
  }
}

TEST_P(ScalarInputsTest, ATensorOfTheDeviceInItsPlaceIsCopied) {
  CompiledFunction f = compile(elsewhere(), "f", [](Tensor s) { return affine(s, 2, 0); });
  for (int call = 0; call < 6; ++call) {
    const auto n = static_cast<float>(call);
    EXPECT_EQ(values(f(scalar(n)))[0], 2 * n);
    EXPECT_EQ(values(f(there(Shape(), std::vector<float>{n + 1})))[0], 2 * n + 2);
  }
  EXPECT_EQ(f.stats().skipped(), 0u);
  EXPECT_EQ(f.stats().recordings, 2u);
}

// Acceptance: trees 125.
TEST_P(ScalarInputsTest, WritingIntoOneIsRefusedByName) {
  CompiledFunction f = compile(elsewhere(), "f", [](Tensor s) { update(s, 1, 1); },
                               {.inputs = {{.name = "count", .is_mutated = true}}});
  try {
    f(scalar(1.0f));
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(std::string(error.message()),
                HasSubstr("input 0 'count' of 'f' is passed by value"));
  }
}

TEST_P(ScalarInputsTest, AValueThatDoesNotLieInOnePieceOrWouldBePaddedIsRefused) {
  const Block<6> block = {{1, 2, 3, 4, 5, 6}};
  const Tensor value = by_value(&block, sizeof(block), {2, 3}, DType::kFloat32);
  CompiledFunction f = compile(elsewhere(), "f", [](Tensor x) { return affine(x, 2, 0); });
  EXPECT_THAT([&] { (void)f(value.slice(1, 0, 2)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("in one piece")));
  CompiledFunction g = compile(
      elsewhere(), "g", [](Tensor x) { return affine(x, 2, 0); },
      {.inputs = {{.name = "x", .dynamic = {{0, "n"}}}}, .buckets = {{.axis = "n", .sizes = {4}}}});
  EXPECT_THAT([&] { (void)g(value); },
              ThrowsMessage<InvalidArgument>(HasSubstr("input 0 'x' of 'g' is passed by value")));
  EXPECT_EQ(f(value.slice(0, 1, 2)).to_vector<float>(), (std::vector<float>{8, 10, 12}));
}

TEST(ScalarInputs, OnAHostContextItIsPassedByValueToo) {
  Context context(Device::host());
  CompiledFunction f = compile(context, "f", [](Tensor s) { return affine(s, 2, 0); });
  for (int call = 0; call < 4; ++call)
    EXPECT_EQ(f(scalar(1.0f * call)).to_vector<float>()[0], 2.0f * call);
  EXPECT_EQ(f.stats().replays, 2u);
  EXPECT_THAT(snapshot_json(context), HasSubstr("\"value\""));
}

TEST_P(ScalarInputsTest, AStructOfAnySizeArrivesAsItWasAtTheCall) {
  expect_blocks_arrive<1>();
  expect_blocks_arrive<3>();
  expect_blocks_arrive<256>();    // the largest that is passed as arguments
  expect_blocks_arrive<257>();    // the smallest that is staged
  expect_blocks_arrive<20000>();  // several blocks of the kernel
}

TEST_P(ScalarInputsTest, ManyStructsShareNodes) {
  CompiledFunction f = compile(elsewhere(), "f", [](std::span<const Tensor> blocks) {
    Tensor sum = from_block(blocks[0]);
    for (std::size_t i = 1; i < blocks.size(); ++i)
      sum = add(sum, from_block(blocks[i]));
    return sum;
  });
  for (int call = 0; call < 6; ++call) {
    std::vector<Tensor> blocks;
    std::vector<float> expected(100, 0);
    for (int i = 0; i < 12; ++i) {
      Block<100> block;
      for (std::size_t k = 0; k < 100; ++k)
        expected[k] += block.numbers[k] = static_cast<float>(random_() % 1000);
      blocks.push_back(step_block(block));
    }
    EXPECT_EQ(values(f(blocks)), expected) << call;
  }
  EXPECT_EQ(f.stats().replays, 4u);
}

TEST_P(ScalarInputsTest, EitherOfTwoMayChangeAlone) {
  CompiledFunction f = compile(elsewhere(), "f", [](Tensor x, Tensor s, Tensor t) {
    return add(affine(add(x, s), 10, 0), t);
  });
  const std::vector<float> x = random_floats(4);
  const Tensor given = there({4}, x);
  float s = 0, t = 0;
  for (int call = 0; call < 9; ++call) {
    (call % 2 == 0 ? s : t) += 1;
    std::vector<float> expected;
    for (const float value : x)
      expected.push_back(10 * (value + s) + t);
    EXPECT_EQ(values(f(given, scalar(s), scalar(t))), expected) << call;
  }
}

}  // namespace
}  // namespace cgtree::testing
