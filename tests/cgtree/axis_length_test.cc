// axis_length(): the true size on the device, in every phase.
#include "cgtree/values/axes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "interop/device/device_api.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class AxisLengthTest : public TreeTest {
 protected:
  // The length as an output: one int64, copied by the device.
  static Tensor read(std::string_view axis) {
    const Tensor length = axis_length(axis);
    Tensor copy = empty(Shape(), DType::kInt64);
    const StreamRef stream = current_stream();
    check(stream.api().copy(stream.handle(), copy.data(), length.data(), sizeof(std::int64_t)),
          "copy");
    return copy;
  }
  static std::int64_t value(const Tensor& tensor) { return tensor.to_vector<std::int64_t>()[0]; }
};
CGTREE_ON_ALL_DEVICES(AxisLengthTest);

// Row dynamic_scalar_inputs: the scalar is on the device, and its value is not recorded.
// Acceptance: trees 156.
TEST_P(AxisLengthTest, EveryCallSeesItsOwnSize) {
  const auto f =
      compile(context(), "f", [](Tensor x) { return std::pair(affine(x, 2, 0), read("n")); },
              {.inputs = {{.dynamic = {{0, "n"}}}},
               .buckets = {{"n", {4, 8}}},
               .outputs = {{.dynamic = {{0, "n"}}}}});
  for (const std::int64_t size : {3, 4, 3, 2, 8, 5, 7, 4, 1, 9, 6}) {
    const std::vector<float> x = random_floats(size);
    const auto [doubled, length] = f(tensor({size}, x));
    EXPECT_EQ(values(doubled), affine_of(x, 2, 0));
    EXPECT_EQ(value(length), size);
  }
  EXPECT_EQ(f.stats().recordings, 2u);
  EXPECT_EQ(f.stats().skipped(), 1u);
}

TEST_P(AxisLengthTest, EachOfTwoAxesHasItsOwn) {
  const auto f =
      compile(context(), "f", [](Tensor) { return std::pair(read("rows"), read("columns")); },
              {.inputs = {{.dynamic = {{0, "rows"}, {1, "columns"}}}},
               .buckets = {{"rows", {8}}, {"columns", {8}}}});
  for (std::int64_t call = 1; call < 6; ++call) {
    const auto [rows, columns] = f(random_tensor({call, 8 - call}));
    EXPECT_EQ(value(rows), call);
    EXPECT_EQ(value(columns), 8 - call);
  }
  EXPECT_EQ(f.stats().recordings, 1u);
}

TEST_P(AxisLengthTest, HeldOutputsKeepTheLengthOfTheirCall) {
  const auto f = compile(context(), "f", [](Tensor) { return read("n"); },
                         {.inputs = {{.dynamic = {{0, "n"}}}}, .buckets = {{"n", {8}}}});
  std::vector<Tensor> held;
  for (std::int64_t size = 1; size <= 8; ++size)
    held.push_back(f(random_tensor({size})));
  for (std::int64_t size = 1; size <= 8; ++size)
    EXPECT_EQ(value(held[static_cast<std::size_t>(size - 1)]), size);
}

TEST_P(AxisLengthTest, ItIsNotReturned) {
  const auto f = compile(context(), "f", [](Tensor) { return axis_length("n"); },
                         {.inputs = {{.dynamic = {{0, "n"}}}}, .buckets = {{"n", {8}}}});
  try {
    (void)f(random_tensor({2}));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("output 0 of 'f' is axis_length(\"n\")"));
  }
}

TEST_P(AxisLengthTest, AnAxisThatIsNotThereIsNamed) {
  const auto f = compile(context(), "f", [](Tensor) { return axis_length("m"); },
                         {.inputs = {{.dynamic = {{0, "n"}}}}});
  const auto g = compile(context(), "g", [](Tensor) { return axis_length("m"); });

  EXPECT_THROW((void)f(random_tensor({2})), InvalidArgument);
  EXPECT_THROW((void)g(random_tensor({2})), InvalidArgument);
  EXPECT_THROW((void)axis_length("n"), InvalidArgument);
}

}  // namespace
}  // namespace cgtree::testing
