// Functions with buckets: inputs are padded on the way in, outputs sliced, recordings shared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "extensions/watch/monitor.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class BucketsTest : public TreeTest {
 protected:
  using Function = CompiledFunction<Tensor(Tensor)>;

  // 2 x + 1 of {n, 3}; n is seen as 2, 4 or 8.
  Function padded(CompileOptions options = {}) {
    options.inputs = {{.name = "x", .dynamic = {{0, "n"}}}};
    if (options.buckets.empty()) options.buckets = {{"n", {2, 4, 8}}};
    options.outputs = {{.name = "y", .dynamic = {{0, "n"}}}};
    return compile(
        context(), "padded",
        [this](Tensor x) {
          seen_.push_back(x.dim(0));
          return affine(x, 2, 1);
        },
        options);
  }
  void call(const Function& f, std::int64_t size) {
    const std::vector<float> x = random_floats(size * 3);
    const Tensor y = f(tensor({size, 3}, x));
    EXPECT_EQ(y.shape(), Shape({size, 3}));
    EXPECT_EQ(values(y), affine_of(x, 2, 1));
  }
  // Returns the whole bucket: the output's axis is not declared dynamic, so it is not sliced.
  Function window(Padding padding) {
    return compile(context(), "window", [](Tensor x) { return affine(x, 1, 0); },
                   {.inputs = {{.name = "x", .dynamic = {{0, "n"}}, .padding = padding}},
                    .buckets = {{"n", {4}}}});
  }
  template <typename F>
  static std::uint64_t skips(const F& function, SkipReason reason) {
    return function.stats().skips[static_cast<int>(reason)];
  }
  // A tensor of these values at the start of a larger one whose other elements are poison.
  Tensor strided(std::int64_t rows, std::int64_t columns, const std::vector<float>& x) {
    const std::int64_t wide = columns + 1 + static_cast<std::int64_t>(random_() % 4);
    std::vector<float> all(static_cast<std::size_t>((rows + 2) * wide), 1e30f);
    for (std::int64_t row = 0; row < rows; ++row)
      std::copy_n(x.begin() + row * columns, columns, all.begin() + row * wide);
    return tensor({rows + 2, wide}, all).slice(0, 0, rows).slice(1, 0, columns);
  }

  std::vector<std::int64_t> seen_;
};
CGTREE_ON_ALL_DEVICES(BucketsTest);

TEST_P(BucketsTest, OneRecordingServesAllSizesOfABucket) {
  const Function f = padded();
  for (const std::int64_t size : {3, 4, 3, 4, 0, 8, 5, 6, 7, 8, 1, 2, 1, 0, 4, 3, 5})
    call(f, size);

  EXPECT_EQ(seen_, (std::vector<std::int64_t>{4, 4, 2, 8, 8, 2}));
  EXPECT_EQ(f.stats().recordings, 3u);
  EXPECT_EQ(f.stats().skipped(), 0u);
  validate();
}

TEST_P(BucketsTest, AnInputOfAnotherSizeAtTheSameAddressIsCopiedAsItIsNow) {
  const Function f = window({});
  const std::vector<float> x = random_floats(4);
  const Tensor whole = tensor({4}, x);
  for (const std::int64_t size : {4, 4, 4, 2, 3, 1, 4}) {
    std::vector<float> expected = x;
    std::fill(expected.begin() + size, expected.end(), 0.0f);
    EXPECT_EQ(values(f(whole.slice(0, 0, size))), expected) << size;
  }
  EXPECT_EQ(f.stats().recordings, 1u);
}

TEST_P(BucketsTest, OptionsDefineTheValuesBeyondTheTrueSizes) {
  struct Row {
    Padding padding;
    std::vector<float> rest;  // after a last actual value of 7
  };
  for (const Row& row : {Row{{}, {0, 0, 0}}, Row{Padding::of(-2.5), {-2.5, -2.5, -2.5}},
                         Row{Padding::last(), {7, 7, 7}}}) {
    const Function f = window(row.padding);
    const float poison[] = {9, 9, 9, 9};
    for (int round = 0; round < 3; ++round) {  // warm-up, recording, replays
      (void)f(tensor({4}, poison));
      for (std::size_t size = 1; size <= 4; ++size) {
        std::vector<float> x(size, 7), expected = x;
        expected.insert(expected.end(), row.rest.begin(), row.rest.begin() + (4 - size));
        EXPECT_EQ(values(f(tensor({static_cast<std::int64_t>(size)}, x))), expected);
      }
    }
  }
}

TEST_P(BucketsTest, AFirstCallIsPaddedToo) {
  const Function f = window(Padding::of(5));
  for (int round = 0; round < 3; ++round) {
    const std::vector<float> x = random_floats(2);
    EXPECT_EQ(values(f(tensor({2}, x))), (std::vector<float>{x[0], x[1], 5, 5}));
  }
}

TEST_P(BucketsTest, APaddingThatTheTypeCannotHoldIsNamed) {
  const Function f =
      compile(context(), "f", [](Tensor x) { return x; },
              {.inputs = {{.name = "ids", .dynamic = {{0, "n"}}, .padding = Padding::of(-0.5)}},
               .buckets = {{"n", {4}}}});
  const std::int32_t ids[] = {1, 2};
  try {
    (void)f(from_host<std::int32_t>({2}, ids, device()));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("input 0 'ids' of 'f': "));
    EXPECT_THAT(error.what(), HasSubstr("padding with -0.5: int32 cannot hold it"));
  }
}

TEST_P(BucketsTest, StridesMayChangeFromCallToCall) {
  const Function f = padded();
  for (int round = 0; round < 8; ++round) {
    const std::int64_t size = 3 + round % 2;
    const std::vector<float> x = random_floats(size * 3);
    EXPECT_EQ(values(f(strided(size, 3, x))), affine_of(x, 2, 1));
  }

  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(f.stats().replays, 6u);
}

TEST_P(BucketsTest, SeveralAxesArePaddedAtOnce) {
  const auto f = compile(
      context(), "outer",
      [this](Tensor x, Tensor y) {
        seen_.push_back(x.dim(0) * 100 + x.dim(1));
        return std::pair(add(x, y), affine(y, 3, 0));
      },
      {.inputs = {{.dynamic = {{0, "rows"}, {1, "columns"}}},
                  {.dynamic = {{1, "columns"}, {0, "rows"}}}},
       .buckets = {{"rows", {2, 4}}, {"columns", {3, 5}}},
       .outputs = {{.dynamic = {{0, "rows"}, {1, "columns"}}}, {.dynamic = {{1, "columns"}}}}});

  for (int round = 0; round < 3; ++round) {
    for (const auto& [rows, columns] : {std::pair(3, 2), {4, 3}, {1, 5}, {2, 4}, {4, 4}}) {
      const std::vector<float> x = random_floats(rows * columns), y = random_floats(rows * columns);
      const auto [sum, tripled] = f(strided(rows, columns, x), tensor({rows, columns}, y));
      ASSERT_EQ(sum.shape().dims().size(), 2u);
      EXPECT_EQ(sum.dim(0), rows);
      EXPECT_EQ(sum.dim(1), columns);
      EXPECT_EQ(tripled.dim(0), rows <= 2 ? 2 : 4);
      EXPECT_EQ(tripled.dim(1), columns);
      Tensor whole = context().eager([&] { return affine(sum, 1, 0); });
      std::vector<float> expected;
      for (std::size_t i = 0; i < x.size(); ++i)
        expected.push_back(x[i] + y[i]);
      EXPECT_EQ(values(whole), expected);
      whole = context().eager([&] { return affine(tripled.slice(0, 0, rows), 1, 0); });
      EXPECT_EQ(values(whole), affine_of(y, 3, 0));
    }
  }
  EXPECT_EQ(seen_, (std::vector<std::int64_t>{403, 403, 205, 205, 405, 405}));
}

TEST_P(BucketsTest, ASlicedOutputIsPassedOnWithoutACopyWhereAnythingMayFollow) {
  const Function f = padded();
  const auto g = compile(context(), "g", [](Tensor x) { return affine(x, 1, 5); },
                         {.inputs = {{.dynamic = {{0, "n"}}, .padding = Padding::anything()}},
                          .buckets = {{"n", {2, 4, 8}}},
                          .outputs = {{.dynamic = {{0, "n"}}}}});
  for (const std::int64_t size : {3, 4, 3, 4, 3}) {
    context().mark_step();
    const std::vector<float> x = random_floats(size * 3);
    EXPECT_EQ(values(g(f(tensor({size, 3}, x)))), affine_of(affine_of(x, 2, 1), 1, 5));
  }

  EXPECT_EQ(g.stats().recordings, 1u);
  EXPECT_EQ(g.stats().replays, 3u);
  EXPECT_THAT(snapshot_json(context()), HasSubstr("\"treatment\": \"managed\""));
}

TEST_P(BucketsTest, ASlicedOutputIsCopiedAndPaddedWhereSomethingMustFollow) {
  const Function f = padded();
  const Function g = compile(context(), "g", [](Tensor x) { return affine(x, 1, 5); },
                             {.inputs = {{.dynamic = {{0, "n"}}}}, .buckets = {{"n", {4}}}});
  // Sizes that fill the bucket and sizes that do not, in either order.
  for (const std::int64_t size : {4, 4, 3, 3, 4, 3, 4, 3}) {
    context().mark_step();
    const std::vector<float> x = random_floats(size * 3);
    std::vector<float> expected = affine_of(affine_of(x, 2, 1), 1, 5);
    expected.resize(12, 5);
    EXPECT_EQ(values(g(f(tensor({size, 3}, x)))), expected);
  }

  EXPECT_EQ(g.stats().recordings, 2u);  // one reads whole buckets in place, one copies
  EXPECT_EQ(g.stats().skipped(), 0u);
}

TEST_P(BucketsTest, AnInputThatIsPartOfAnotherTensorIsNotSeenBeyondItsStorage) {
  const Function g = compile(context(), "g", [](Tensor x) { return affine(x, 1, 5); },
                             {.inputs = {{.dynamic = {{0, "n"}}, .padding = Padding::anything()}},
                              .buckets = {{"n", {4}}},
                              .outputs = {{.dynamic = {{0, "n"}}}}});
  const Function f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  for (int round = 0; round < 4; ++round) {
    context().mark_step();
    const std::vector<float> x = random_floats(6);
    const Tensor last = f(tensor({6}, x)).slice(0, 3, 6);  // 3 of 4, where the storage ends
    EXPECT_EQ(values(g(last)),
              affine_of(affine_of(std::vector<float>(x.begin() + 3, x.end()), 2, 1), 1, 5));
  }
}

TEST_P(BucketsTest, HeldOutputsOfManySizesKeepTheirValues) {
  const Function f = padded();
  std::vector<std::pair<Tensor, std::vector<float>>> held;
  for (int round = 0; round < 30; ++round) {
    const auto size = static_cast<std::int64_t>(1 + random_() % 8);
    const std::vector<float> x = random_floats(size * 3);
    held.emplace_back(f(tensor({size, 3}, x)), affine_of(x, 2, 1));
    if (held.size() > 3) held.erase(held.begin() + random_() % 3);
    for (const auto& [output, expected] : held)
      EXPECT_EQ(values(output), expected);
  }
  held.clear();
  validate();
}

TEST_P(BucketsTest, AboveTheLargestBucketACallRunsEagerlyAndSaysWhy) {
  const Function f = padded();
  call(f, 9);
  call(f, 9);

  EXPECT_EQ(skips(f, SkipReason::kAboveLargestBucket), 2u);
  EXPECT_EQ(seen_, (std::vector<std::int64_t>{9, 9}));
  EXPECT_THAT(to_string(f.explain(random_tensor({9, 3}))),
              HasSubstr("axis 'n' is 9, the largest of its 3 buckets is 8"));
}

TEST_P(BucketsTest, AboveTheLargestBucketACallThrowsWhereOptionsSaySo) {
  const Function f = padded({.buckets = {{"n", {2, 4}, AboveLargest::kThrow}}});
  try {
    call(f, 5);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("'padded': axis 'n' is 5, the largest of its 2 buckets is 4"));
  }
  EXPECT_EQ(f.explain(random_tensor({5, 3})).outcome, Outcome::kThrow);
  call(f, 4);
}

TEST_P(BucketsTest, WhereAGraphIsRequiredTheSizeIsNamed) {
  const Function f = padded({.require_graph = true});
  try {
    call(f, 9);
    FAIL();
  } catch (const CaptureError& error) {
    EXPECT_THAT(error.what(), HasSubstr("axis 'n' is 9, the largest of its 3 buckets is 8"));
  }
}

TEST_P(BucketsTest, ExplainNamesAxisSizeAndBucket) {
  const Function f = padded();
  const Tensor x = random_tensor({3, 3});

  const Explanation why = f.explain(x);
  EXPECT_EQ(why.outcome, Outcome::kWarmUp);
  EXPECT_EQ(why.axes, (std::vector<AxisInUse>{{"n", 3, 4}}));
  EXPECT_THAT(to_string(why), HasSubstr("axis 'n': 3, padded to 4"));
  call(f, 4);
  call(f, 4);
  EXPECT_EQ(f.explain(x).outcome, Outcome::kReplay);
}

TEST_P(BucketsTest, AnOutputThatHasNotTheBucketsSizeIsNamed) {
  const Function f =
      compile(context(), "f", [](Tensor x) { return affine(x.slice(0, 0, 2), 2, 0); },
              {.inputs = {{.dynamic = {{0, "n"}}}},
               .buckets = {{"n", {4}}},
               .outputs = {{.name = "y", .dynamic = {{0, "n"}}}}});
  try {
    (void)f(random_tensor({3}));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("output 0 'y' of 'f' is float32 {2}"));
    EXPECT_THAT(error.what(), HasSubstr("'n', of which the function saw 4"));
  }
  EXPECT_EQ(stats().live_outputs, 0u);
}

TEST_P(BucketsTest, AnOutputThatIsThePaddedInputIsSlicedToo) {
  const Function f = compile(context(), "f", [](Tensor x) { return x; },
                             {.inputs = {{.dynamic = {{0, "n"}}}},
                              .buckets = {{"n", {4}}},
                              .outputs = {{.dynamic = {{0, "n"}}}}});
  for (const std::int64_t size : {3, 2, 4, 3}) {
    context().mark_step();
    const std::vector<float> x = random_floats(size * 3);
    EXPECT_EQ(values(f(strided(size, 3, x))), x);
  }
}

TEST_P(BucketsTest, BuffersHaveTrueSizesAndShareTheRecording) {
  const Function f = padded();
  for (const std::int64_t size : {3, 4, 3, 4, 4, 3}) {
    context().mark_step();
    const std::vector<float> x = random_floats(size * 3);
    const Tensor poison = tensor({size + 1, 3}, std::vector<float>(3 * (size + 1), 9));
    const Tensor y = f.into(poison.slice(0, 0, size))(tensor({size, 3}, x));
    EXPECT_EQ(y.address(), poison.address());
    std::vector<float> expected = affine_of(x, 2, 1);
    expected.resize(expected.size() + 3, 9);
    EXPECT_EQ(values(poison), expected);
  }
  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(f.stats().replays, 4u);
}

TEST_P(BucketsTest, AMissingSizeMayRunEagerlyOrInALargerRecording) {
  for (const WhileMissing policy : {WhileMissing::kNextLarger, WhileMissing::kRunEagerly}) {
    const Function f = padded({.while_missing = policy});
    for (const std::int64_t size : {3, 3, 3})
      call(f, size);
    EXPECT_EQ(skips(f, SkipReason::kNotRecorded), 3u);
    EXPECT_EQ(f.stats().warm_ups, 0u);
    EXPECT_THAT(to_string(f.explain(random_tensor({3, 3}))), HasSubstr("axis 'n' is 3"));
  }
}

// The output is a separate tensor with the values of its call, in every order of sizes and phases.
TEST_P(BucketsTest, AnOutputThatIsAPaddedInputIsATensorOfItsOwn) {
  for (const bool exact_first : {true, false}) {
    const Function f = compile(context(), "f", [](Tensor x) { return x; },
                               {.inputs = {{.dynamic = {{0, "n"}}}},
                                .buckets = {{"n", {4}}},
                                .outputs = {{.dynamic = {{0, "n"}}}}});
    std::vector<std::pair<Tensor, std::vector<float>>> held;
    for (int call = 0; call < 8; ++call) {
      const bool exact = (call % 4 < 2) == exact_first;
      const std::int64_t rows = exact ? 4 : 3;
      const std::vector<float> x = random_floats(rows * 3);
      const Tensor given = call % 2 == 0 ? tensor({rows, 3}, x) : strided(rows, 3, x);
      const Tensor y = f(given);
      EXPECT_NE(y.storage(), given.storage()) << call;
      ASSERT_EQ(y.shape(), Shape({rows, 3})) << call;
      EXPECT_EQ(values(y), x) << call;
      held.emplace_back(y, x);
    }
    for (const auto& [y, x] : held)
      EXPECT_EQ(values(y), x);
  }
}

TEST_P(BucketsTest, AViewOfAPaddedInputIsNotTheMemoryBehindTheCallersTensor) {
  const Function f = compile(context(), "f", [](Tensor x) { return x.slice(0, 1, 2); },
                             {.inputs = {{.dynamic = {{0, "n"}}}}, .buckets = {{"n", {2}}}});
  const Function g = compile(context(), "g", [](Tensor x) { return x.slice(0, 1, 2); },
                             {.inputs = {{.dynamic = {{0, "n"}}, .padding = Padding::anything()}},
                              .buckets = {{"n", {2}}}});
  for (int call = 0; call < 6; ++call) {
    const std::vector<float> x = random_floats(2);
    const Tensor given = tensor({2}, x);
    EXPECT_EQ(values(f(given))[0], x[1]);
    const Tensor one = f(given.slice(0, 0, 1));
    EXPECT_NE(one.storage(), given.storage());
    EXPECT_EQ(values(one)[0], 0);
    EXPECT_NE(g(given.slice(0, 0, 1)).storage(), given.storage());
    EXPECT_EQ(values(g(given))[0], x[1]);
  }
}

TEST_P(BucketsTest, AManagedInputThatIsPaddedAndReturnedIsCopied) {
  const Function make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  const Function f = compile(context(), "f", [](Tensor x) { return x; },
                             {.inputs = {{.dynamic = {{0, "n"}}}},
                              .buckets = {{"n", {4}}},
                              .outputs = {{.dynamic = {{0, "n"}}}}});
  for (int call = 0; call < 6; ++call) {
    const std::vector<float> x = random_floats(4);
    const Tensor made = make(tensor({4}, x));
    const Tensor y = f(made);
    EXPECT_NE(y.storage(), made.storage());
    EXPECT_EQ(values(y), affine_of(x, 2, 0));
    const Tensor z = f(made.slice(0, 0, 3));
    EXPECT_NE(z.storage(), made.storage());
    EXPECT_EQ(values(z)[2], 2 * x[2]);
  }
  EXPECT_EQ(f.stats().skipped(), 0u);
}

// The warm-up sees a copy, because its input does not fill the bucket.
TEST_P(BucketsTest, AManagedInputThatFillsItsBucketIsCopiedAfterAWarmUpThatSawACopy) {
  const Function make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  for (const bool is_view : {false, true}) {
    const Function f =
        compile(context(), "f", [=](Tensor x) { return is_view ? x.slice(0, 0, 4) : x; },
                {.inputs = {{.dynamic = {{0, "n"}}}},
                 .buckets = {{"n", {4}}},
                 .outputs = {{.dynamic = {{0, "n"}}}}});
    (void)f(random_tensor({3}));
    for (int call = 0; call < 4; ++call) {
      const std::vector<float> x = random_floats(4);
      const Tensor made = make(tensor({4}, x));
      const Tensor y = f(made);
      EXPECT_NE(y.storage(), made.storage());
      EXPECT_EQ(values(y), affine_of(x, 2, 0));
    }
  }
}

// The step function returns its input only when it is recorded, because of a variable on the host.
TEST_P(BucketsTest, AManagedInputThatIsReturnedWhenRecordedAloneIsCopied) {
  const Function make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  bool returns_it = false;
  const Function f =
      compile(context(), "f", [&](Tensor x) { return returns_it ? x : affine(x, 1, 0); },
              {.inputs = {{.dynamic = {{0, "n"}}}},
               .buckets = {{"n", {4}}},
               .outputs = {{.dynamic = {{0, "n"}}}}});
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(4);
    const Tensor made = make(tensor({4}, x));
    const Tensor y = f(made);
    EXPECT_NE(y.storage(), made.storage());
    EXPECT_EQ(values(y), affine_of(x, 2, 0));
    returns_it = true;
  }
}

// The axis of an output may differ from that of its input.
TEST_P(BucketsTest, ATransposedOutputIsSlicedAlongItsOwnAxis) {
  const auto f = compile(context(), "f",
                         [](Tensor m, Tensor x) {
                           return std::pair(affine(x.transpose(0, 1), 1, 0), affine(m, 1, 0));
                         },
                         {.inputs = {{.dynamic = {{1, "m"}}}, {.dynamic = {{0, "n"}}}},
                          .buckets = {{"n", {4}}, {"m", {8}}},
                          .outputs = {{.dynamic = {{1, "n"}}}, {.dynamic = {{1, "m"}}}}});
  for (int call = 0; call < 8; ++call) {
    const std::int64_t n = 1 + call % 4, m = 5 + call % 3;
    const std::vector<float> x = random_floats(n * 3), other = random_floats(2 * m);
    const auto [y, z] = f(tensor({2, m}, other), tensor({n, 3}, x));
    ASSERT_TRUE(std::ranges::equal(y.shape().dims(), Shape({3, n}).dims()));
    ASSERT_TRUE(std::ranges::equal(z.shape().dims(), Shape({2, m}).dims()));
    const std::vector<float> dense =
        values(context().eager([y = y] { return affine(y.transpose(0, 1), 1, 0); }));
    // The strides of results are kept, so compare one row at a time.
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t column = 0; column < 3; ++column) {
        EXPECT_EQ(values(y.slice(0, column, column + 1).slice(1, row, row + 1).reshape({1}))[0],
                  x[row * 3 + column]);
      }
    }
  }
  EXPECT_EQ(f.stats().recordings, 1u);
}

// A dense slice of a larger tensor has two padded axes, and fills only the second.
TEST_P(BucketsTest, AnInputFillsItsBucketOnlyIfEachAxisDoes) {
  const auto f =
      compile(context(), "f", [](Tensor x) { return affine(x, 1, 0); },
              {.inputs = {{.dynamic = {{0, "n"}, {1, "m"}}}}, .buckets = {{"n", {4}}, {"m", {3}}}});
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(12);
    std::vector<float> expected = x;
    std::fill(expected.begin() + 6, expected.end(), 0);
    EXPECT_EQ(values(f(tensor({4, 3}, x).slice(0, 0, 2))), expected) << call;
  }
}

// Notes about the padded tensors of a call with buffers are not used for the inputs of later calls.
TEST_P(BucketsTest, BuffersOfOneCallAreNotTheInputsOfTheNext) {
  const auto f = compile(context(), "f",
                         [](std::span<const Tensor> x) {
                           std::vector<Tensor> outputs;
                           for (const Tensor& each : x)
                             outputs.push_back(affine(each, 2, 0));
                           return outputs;
                         },
                         {.inputs = {{.dynamic = {{0, "n"}}}, {}},
                          .buckets = {{"n", {4}}},
                          .outputs = {{.dynamic = {{0, "n"}}}, {}}});
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> a = random_floats(3), b = random_floats(2), c = random_floats(6);
    const std::vector<Tensor> two = {tensor({3}, a), tensor({2}, b)};
    const std::vector<Tensor> buffer = {random_tensor({3})};
    (void)f.into(buffer)(two);
    EXPECT_EQ(values(buffer[0]), affine_of(a, 2, 0));
    const std::vector<Tensor> four = {tensor({3}, a), tensor({2}, b), tensor({6}, c),
                                      tensor({6}, c)};
    const std::vector<Tensor> outputs = f(four);
    ASSERT_EQ(outputs.size(), 4u);
    EXPECT_EQ(values(outputs[0]), affine_of(a, 2, 0));
    EXPECT_EQ(values(outputs[2]), affine_of(c, 2, 0));
  }
}

}  // namespace
}  // namespace cgtree::testing
