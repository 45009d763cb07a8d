// Calls that differ slightly from the recorded call: no replay may serve them.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "tests/support/core_fixture.h"

namespace cgtree::testing {
namespace {

class PredictedCallsTest : public TreeTest {};
CGTREE_ON_ALL_DEVICES(PredictedCallsTest);

TEST_P(PredictedCallsTest, ASmallBufferInTheTailOfALargeInputIsRefused) {
  const CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return affine(x.slice(0, 0, 4), 2, 0); });
  const Tensor x = random_tensor({64});
  const Tensor buffer = random_tensor({4});
  for (int call = 0; call < 3; ++call)
    (void)f.into(buffer)(x);

  EXPECT_THROW((void)f.into(x.slice(0, 60, 64))(x), InvalidArgument);
}

TEST_P(PredictedCallsTest, ABufferIsNoInput) {
  const CompiledFunction f = compile(context(), "f", [](std::span<const Tensor> inputs) {
    return std::vector<Tensor>{affine(inputs[0], 1, static_cast<float>(inputs.size()))};
  });
  const std::vector<float> values_of_x = random_floats(3);
  const Tensor x = tensor({3}, values_of_x);
  const Tensor other = random_tensor({3});
  const std::vector<Tensor> both{x, other};
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(f(both)[0]), affine_of(values_of_x, 1, 2));

  for (int call = 0; call < 3; ++call) {
    const std::vector<Tensor> outputs = f.into({&other, 1})({&x, 1});
    EXPECT_EQ(outputs[0].storage(), other.storage());
    EXPECT_EQ(values(other), affine_of(values_of_x, 1, 1));
  }
}

TEST_P(PredictedCallsTest, ATransposedOutputIsSlicedToTheSizeOfItsOwnAxis) {
  const CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return affine(x, 1, 0).transpose(0, 1); },
              {.inputs = {{.dynamic = {{0, "rows"}}}},
               .buckets = {{"rows", {4}}},
               .outputs = {{.dynamic = {{1, "rows"}}}}});

  for (int call = 0; call < 4; ++call) {
    const Tensor y = f(random_tensor({2, 3}));
    EXPECT_EQ(y.dim(0), 3);
    EXPECT_EQ(y.dim(1), 2);
  }
}

TEST_P(PredictedCallsTest, AnInputThatFillsOnlyItsLastAxisIsPadded) {
  const CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 1, 1); },
                                     {.inputs = {{.dynamic = {{0, "rows"}, {1, "columns"}}}},
                                      .buckets = {{"rows", {4}}, {"columns", {4}}}});
  std::vector<float> contents = random_floats(16);
  const Tensor whole = tensor({4, 4}, contents);
  std::fill(contents.begin() + 8, contents.end(), 0.0f);  // the input with its padding

  for (int call = 0; call < 4; ++call)
    EXPECT_EQ(values(f(whole.slice(0, 0, 2))), affine_of(contents, 1, 1));
}

TEST_P(PredictedCallsTest, AStaticInputOfAnotherTypeAtTheSameAddressIsRecordedAnew) {
  const CompiledFunction f =
      compile(context(), "f",
              [](Tensor x) {
                const float scale = x.dtype() == DType::kFloat32 ? 2 : 3;
                return affine(Tensor(x.storage(), 0, x.shape(), DType::kFloat32), scale, 0);
              },
              {.inputs = {{.is_static = true}}});
  const std::vector<float> contents = random_floats(4);
  const Tensor x = tensor({4}, contents);
  const Tensor integers(x.storage(), 0, x.shape(), DType::kInt32);
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(f(x)), affine_of(contents, 2, 0));

  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(f(integers)), affine_of(contents, 3, 0));
  EXPECT_EQ(f.stats().recordings, 2u);
}

TEST_P(PredictedCallsTest, ABufferThatIsLargerThanThePaddedOutputsActualSizeIsRefused) {
  const CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); },
                                     {.inputs = {{.dynamic = {{0, "n"}}}},
                                      .buckets = {{"n", {8}}},
                                      .outputs = {{.dynamic = {{0, "n"}}}}});
  const Tensor x = random_tensor({5});
  const Tensor exact = random_tensor({5});
  for (int call = 0; call < 3; ++call)
    (void)f.into(exact)(x);

  EXPECT_THROW((void)f.into(random_tensor({7}))(x), InvalidArgument);
}

}  // namespace
}  // namespace cgtree::testing
