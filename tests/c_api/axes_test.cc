// Dynamic axes through C: padding, actual sizes and histograms.
#include <string>

#include "tests/c_api/axis_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;

class AxesTest : public CAxisTest {};
CGTREE_ON_ALL_DEVICES(AxesTest);

TEST_P(AxesTest, PaddingIsWhatTheInputSays) {
  OneAxis options({5});
  options.axis.output_count = 0;  // makes the padding visible
  const auto padded = [&](cgt_padding padding) {
    options.input.padding = padding;
    options.input.padding_value = 7;
    const OwnedFunction function = compile_affine(options);
    std::vector<float> values;
    for (int i = 0; i < 3; ++i) {
      const OwnedTensor x = make_tensor_of(device(), {1, 2, 3});
      OwnedTensor y;
      EXPECT_DONE(call(function, x, y));
      values = values_of(y);
    }
    return values;
  };
  EXPECT_THAT(padded(CGT_PAD_UNSET), ElementsAre(3, 5, 7, 1, 1));
  EXPECT_THAT(padded(CGT_PAD_ZEROS), ElementsAre(3, 5, 7, 1, 1));
  EXPECT_THAT(padded(CGT_PAD_VALUE), ElementsAre(3, 5, 7, 15, 15));
  EXPECT_THAT(padded(CGT_PAD_LAST), ElementsAre(3, 5, 7, 7, 7));
  EXPECT_EQ(padded(CGT_PAD_ANYTHING).size(), 5u);
}

TEST_P(AxesTest, TheTrueSizeIsOnTheDeviceInEachReplay) {
  OneAxis options({4, 8});
  options.axis.output_count = 0;
  const OwnedFunction function = compile(
      [](const cgt_tensor*, std::size_t, cgt_tensor* outputs, std::size_t) {
        cgt_tensor length = nullptr;
        EXPECT_DONE(cgt_axis_length("n", &length));
        EXPECT_EQ(info_of(length).ndim, 0);
        EXPECT_DONE(cgt_tensor_empty(CGT_INT64, 0, nullptr, nullptr, &outputs[0]));
        return cgt_tensor_copy(outputs[0], length, nullptr);
      },
      1,
      [&] {
        static cgt_function_options copy;
        static cgt_axis_options axis;
        copy = options.function;
        axis = options.axis;
        axis.output_count = 0;
        copy.axes = &axis;
        return &copy;
      }());
  for (const std::int64_t size : {3, 4, 3, 2, 8, 5, 7, 4, 1, 9, 6}) {
    const OwnedTensor x = make_tensor(device(), {size});
    OwnedTensor y;
    EXPECT_DONE(call(function, x, y));
    std::int64_t found = -1;
    EXPECT_DONE(cgt_tensor_copy_to_host(y, &found, sizeof(found)));
    EXPECT_EQ(found, size);
  }
  EXPECT_EQ(stats(function)["recordings"], 2);
}

TEST_P(AxesTest, ATrueSizeIsNoOutputAndOnlyThereWhereItsAxisIs) {
  OneAxis options({4});
  options.axis.output_count = 0;
  const char* axis = "n";
  const OwnedFunction function =
      compile([&](const cgt_tensor*, std::size_t, cgt_tensor* outputs,
                  std::size_t) { return cgt_axis_length(axis, &outputs[0]); },
              1, &options.function);
  const OwnedTensor x = make_tensor(device(), {4});
  OwnedTensor y, none;
  EXPECT_FAILS(call(function, x, y), CGT_INVALID_ARGUMENT, "axis_length(\"n\")");
  axis = "m";
  EXPECT_FAILS(call(function, x, y), CGT_INVALID_ARGUMENT, "'m'");
  axis = nullptr;
  EXPECT_FAILS(call(function, x, y), CGT_INVALID_ARGUMENT, "the axis is NULL");
  EXPECT_FAILS(cgt_axis_length("n", none.out()), CGT_INVALID_ARGUMENT, "");
  EXPECT_FAILS(cgt_axis_length("n", nullptr), CGT_INVALID_ARGUMENT, "is NULL");
}

class SizesSeenTest : public CAxisTest {
 protected:
  std::string suggest(cgt_function function, std::size_t most) {
    return text_of(cgt_function_suggest_buckets_json, function, most);
  }
  std::string histogram(cgt_function function) {
    return text_of(cgt_function_histogram_json, function, "n");
  }
};
CGTREE_ON_ALL_DEVICES(SizesSeenTest);

TEST_P(SizesSeenTest, TheyAreCountedAndBucketsSuggested) {
  const OwnedFunction function = compile_affine(OneAxis({16}));
  EXPECT_EQ(histogram(function), "[]");
  EXPECT_EQ(suggest(function, 2), "{}");
  for (const std::int64_t size : {5, 1, 5, 3, 5, 9, 9})
    expect_affine(function, size);

  EXPECT_EQ(histogram(function),
            R"([{"size":1,"count":1},{"size":3,"count":1},{"size":5,"count":3},)"
            R"({"size":9,"count":2}])");
  EXPECT_EQ(suggest(function, 2), R"({"n":[5,9]})");
  EXPECT_EQ(suggest(function, 9), R"({"n":[1,3,5,9]})");
}

TEST_P(SizesSeenTest, ImpossibleRequestsAreRefusedByName) {
  const OwnedFunction function = compile_affine(OneAxis({16}));
  const OwnedFunction without = compile(affine_step);
  for (const std::int64_t size : {5, 9})
    expect_affine(function, size);
  const char* text = nullptr;
  EXPECT_FAILS(cgt_function_suggest_buckets_json(function, 0, &text), CGT_INVALID_ARGUMENT, "");
  EXPECT_FAILS(cgt_function_histogram_json(without, "n", &text), CGT_INVALID_ARGUMENT, "'n'");
  EXPECT_FAILS(cgt_function_histogram_json(function, "n", nullptr), CGT_INVALID_ARGUMENT,
               "is NULL");
  EXPECT_FAILS(cgt_function_histogram_json(nullptr, "n", &text), CGT_INVALID_HANDLE,
               "the function is NULL");
  EXPECT_EQ(text, nullptr);
}

}  // namespace
}  // namespace cgtree::testing
