// Invalid options of dynamic axes: compile() refuses each with both sides.
#include "cgtree/axes/axis_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

const std::vector<InputOptions> kBatch = {{.name = "tokens", .dynamic = {{0, "batch"}}}};

void expect_refused(const CompileOptions& options, const std::string& what) {
  try {
    (void)layout_of("decode", options);
    FAIL() << "expected: " << what;
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("'decode': "));
    EXPECT_THAT(error.what(), HasSubstr(what));
  }
}

TEST(AxisLayoutTest, UsesAreListedInOrderAndAxesAsInputsNameThem) {
  const AxisLayout layout = layout_of(
      "decode",
      {.inputs = {{.dynamic = {{1, "length"}, {0, "batch"}}}, {}, {.dynamic = {{2, "length"}}}},
       .buckets = {{"batch", {1, 2}}},
       .outputs = {{.dynamic = {{0, "batch"}}}}});

  ASSERT_EQ(layout.axes.size(), 2u);
  EXPECT_EQ(layout.axes[0].name, "length");
  EXPECT_EQ(layout.axes[0].policy, AxisPolicy::kExact);
  EXPECT_EQ(layout.axes[1].policy, AxisPolicy::kBuckets);
  ASSERT_EQ(layout.inputs.size(), 3u);
  EXPECT_EQ(layout.inputs[2].tensor, 2u);
  EXPECT_EQ(layout.inputs[2].dim, 2u);
  EXPECT_EQ(layout.inputs[2].axis, 0u);
  ASSERT_EQ(layout.outputs.size(), 1u);
  EXPECT_EQ(layout.outputs[0].axis, 1u);
}

TEST(AxisLayoutTest, ListsOfSizesArePositiveAndAscend) {
  expect_refused({.inputs = kBatch, .buckets = {{"batch", {}}}},
                 "axis 'batch' has an empty list of buckets");
  expect_refused({.inputs = kBatch, .buckets = {{"batch", {0, 4}}}},
                 "axis 'batch' has buckets {0, 4}: 0 is not positive");
  expect_refused({.inputs = kBatch, .buckets = {{"batch", {-3}}}}, "{-3}: -3 is not positive");
  expect_refused({.inputs = kBatch, .buckets = {{"batch", {1, 8, 4}}}},
                 "axis 'batch' has buckets {1, 8, 4}: 4 follows 8");
  expect_refused({.inputs = kBatch, .buckets = {{"batch", {1, 4, 4}}}}, "4 is there twice");
  expect_refused({.inputs = kBatch, .axes = {{"batch", AxisPolicy::kAllowList}}},
                 "axis 'batch' has an empty list of sizes");
}

TEST(AxisLayoutTest, IntegersOfTheKeyAreCheckedAsAxesAreAndMayBeZero) {
  const AxisLayout layout = layout_of(
      "decode", {.inputs = kBatch, .keys = {{"draft", AxisPolicy::kBuckets, {0, 2}}, {"k"}}});
  ASSERT_EQ(layout.axes.size(), 3u);
  EXPECT_EQ(layout.keys, 2u);
  EXPECT_EQ(layout.axes[1].name, "draft");
  expect_refused({.keys = {{"draft", AxisPolicy::kBuckets, {-1, 2}}}},
                 "'draft' of the key has buckets {-1, 2}: -1 is negative");
  expect_refused({.keys = {{""}}}, "an integer of the key needs a name");
  expect_refused({.keys = {{"draft"}, {"draft"}}}, "the name of an axis, or options twice");
  expect_refused({.inputs = kBatch, .keys = {{"batch"}}}, "'batch' of the key has the name");
  expect_refused({.keys = {{"1"}, {"2"}, {"3"}, {"4"}, {"5"}, {"6"}, {"7"}, {"8"}, {"9"}}},
                 "more than 8 dynamic axes");
}

TEST(AxisLayoutTest, MultiplesAndPowersOfTwoHaveALargestThatIsOneOfThem) {
  const auto with = [](AxisOptions axis) {
    axis.name = "k";
    return CompileOptions{.keys = {std::move(axis)}};
  };
  expect_refused(with({.policy = AxisPolicy::kMultiples}), "and multiple_of = 1: from 2 to");
  expect_refused(with({.policy = AxisPolicy::kPowersOfTwo, .multiple_of = 2}),
                 "multiple_of = 2, which is of AxisPolicy::kMultiples");
  expect_refused(with({.policy = AxisPolicy::kMultiples, .multiple_of = 8, .largest = 20}),
                 "largest = 20: give a multiple of 8");
  expect_refused(with({.policy = AxisPolicy::kPowersOfTwo, .largest = 0}), "a power of two");
  expect_refused(with({.largest = 8}), "largest = 8, which is of AxisPolicy::kMultiples");
  const AxisOptions multiples{.policy = AxisPolicy::kMultiples, .multiple_of = 8, .largest = 24};
  EXPECT_EQ(sizes_of(multiples), (std::vector<std::int64_t>{8, 16, 24}));
  const AxisOptions powers{.policy = AxisPolicy::kPowersOfTwo, .largest = 8};
  EXPECT_EQ(sizes_of(powers), (std::vector<std::int64_t>{1, 2, 4, 8}));
  expect_refused({.inputs = kBatch, .max_waste = 0.5}, "max_waste is 0.5: at least 1");
}

TEST(AxisLayoutTest, APolicyTakesWhatIsItsOwn) {
  expect_refused({.inputs = kBatch, .axes = {{"batch", AxisPolicy::kSkip, {1, 2}}}},
                 "axis 'batch' has a list of sizes, {1, 2}, and a policy that takes none");
  expect_refused(
      {.inputs = kBatch, .axes = {{.name = "batch", .policy = AxisPolicy::kSkip, .max_sizes = 3}}},
      "axis 'batch' has max_sizes = 3");
  expect_refused({.inputs = kBatch, .axes = {{.name = "batch", .max_sizes = 0}}}, "max_sizes = 0");
  expect_refused({.inputs = kBatch, .axes = {{.name = "batch", .max_sizes = 1 << 20}}},
                 "max_sizes = 1048576: at most 65536");
}

TEST(AxisLayoutTest, AxesAreKnownByNamesThatInputsGive) {
  expect_refused({.inputs = kBatch, .buckets = {{"bach", {1}}}},
                 "options name axis 'bach', no input does; dynamic axes of the inputs: 'batch'");
  expect_refused({.buckets = {{"batch", {1}}}}, "dynamic axes of the inputs: none");
  expect_refused({.inputs = kBatch, .outputs = {{}, {.name = "logits", .dynamic = {{0, "len"}}}}},
                 "output 1 'logits' names axis 'len', no input does");
  expect_refused({.inputs = {{.dynamic = {{0, ""}}}}}, "axis 0 of input 0 needs a name");
  expect_refused({.inputs = kBatch, .buckets = {{"batch", {1}}}, .axes = {{.name = "batch"}}},
                 "axis 'batch' has options twice");
}

// A replay has no input with the actual size.
TEST(AxisLayoutTest, AnIntegerOfTheKeyIsNoAxisOfAnOutput) {
  for (const AxisPolicy policy : {AxisPolicy::kExact, AxisPolicy::kPowersOfTwo}) {
    expect_refused({.inputs = kBatch,
                    .keys = {{.name = "draft", .policy = policy}},
                    .outputs = {{.name = "logits", .dynamic = {{0, "draft"}}}}},
                   "output 0 'logits' names 'draft', which is an integer of the key");
  }
}

TEST(AxisLayoutTest, AxesHaveNumbersThatTensorsHave) {
  expect_refused({.inputs = {{.name = "x", .dynamic = {{-1, "n"}}}}},
                 "axis 'n' of input 0 'x' is number -1; tensors have axes 0 to 7");
  expect_refused({.inputs = {{.dynamic = {{8, "n"}}}}}, "is number 8");
  expect_refused({.inputs = {{.dynamic = {{0, "n"}, {0, "m"}}}}},
                 "axis 0 of input 0 has two names, 'n' and 'm'");
}

TEST(AxisLayoutTest, AStaticInputIsNotPadded) {
  std::vector<InputOptions> inputs = {{.name = "cache", .is_static = true, .dynamic = {{0, "n"}}}};
  expect_refused({.inputs = inputs, .buckets = {{"n", {1, 2}}}},
                 "input 0 'cache' is static, and its axis 'n' would be padded");
  expect_refused({.inputs = inputs,
                  .axes = {{.name = "n", .max_sizes = 2, .at_max_sizes = AtMaxSizes::kNextLarger}}},
                 "is static");
  EXPECT_EQ(layout_of("decode", {.inputs = inputs, .axes = {{.name = "n", .max_sizes = 2}}})
                .axes[0]
                .max_sizes,
            2u);
}

TEST(AxisLayoutTest, AFunctionHasEightDynamicAxesAtMost) {
  std::vector<InputOptions> inputs(9);
  for (int i = 0; i < 9; ++i)
    inputs[static_cast<std::size_t>(i)].dynamic = {{0, "n" + std::to_string(i)}};
  expect_refused({.inputs = inputs}, "more than 8 dynamic axes");
  inputs.pop_back();
  EXPECT_EQ(layout_of("decode", {.inputs = inputs}).axes.size(), 8u);
}

}  // namespace
}  // namespace cgtree::testing
