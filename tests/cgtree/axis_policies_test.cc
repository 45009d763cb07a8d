// Calls with varying sizes under each policy without padding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class AxisPoliciesTest : public TreeTest {
 protected:
  using Doubled = CompiledFunction<Tensor(Tensor)>;

  Doubled doubled(AxisOptions axis, bool enabled = true) {
    return compile(context(), "doubled",
                   [this](Tensor x) {
                     ++runs_;
                     return affine(x, 2, 0);
                   },
                   {.inputs = {{.name = "x", .dynamic = {{0, "n"}}}},
                    .axes = {std::move(axis)},
                    .outputs = {{.dynamic = {{0, "n"}}}},
                    .enabled = enabled});
  }
  void call(const Doubled& f, std::int64_t size) {
    const std::vector<float> x = random_floats(size);
    const Tensor y = f(tensor({size}, x));
    EXPECT_EQ(y.dim(0), size);
    EXPECT_EQ(values(y), affine_of(x, 2, 0));
  }
  static std::uint64_t skips(const Doubled& function, SkipReason reason) {
    return function.stats().skips[static_cast<int>(reason)];
  }
  template <typename Call>
  static std::string error_of(Call&& call) {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "no error";
  }

  int runs_ = 0;
};
CGTREE_ON_ALL_DEVICES(AxisPoliciesTest);

TEST_P(AxisPoliciesTest, WithoutOptionsEverySizeHasARecording) {
  const Doubled f = doubled({.name = "n"});
  for (const std::int64_t size : {3, 3, 3, 5, 5, 3, 5})
    call(f, size);

  EXPECT_EQ(runs_, 4);
  EXPECT_EQ(f.stats().replays, 3u);
}

// Row 6 skip_symbolic: a policy skips a function whose shape varies.
// Acceptance: trees 6.
TEST_P(AxisPoliciesTest, WhereVaryingSizesAreSkippedOneSizeIsGraphedUntilAnotherComes) {
  const Doubled f = doubled({.name = "n", .policy = AxisPolicy::kSkip});
  for (const std::int64_t size : {3, 3, 3})
    call(f, size);
  EXPECT_EQ(f.stats().replays, 1u);

  for (const std::int64_t size : {5, 5, 3})
    call(f, size);

  EXPECT_EQ(skips(f, SkipReason::kDynamicAxis), 3u);
  EXPECT_EQ(f.stats().replays, 1u);
  const Explanation why = f.explain(random_tensor({4}));
  EXPECT_EQ(why.outcome, Outcome::kRunEagerly);
  EXPECT_THAT(to_string(why), HasSubstr("axis 'n' is 4, the first call's was 3"));
}

// Rows 167 to 169 cudagraph_capture_sizes: sizes of the list are graphed, others run eagerly.
// Acceptance: trees 167.
TEST_P(AxisPoliciesTest, OnlySizesOfAListAreGraphed) {
  const Doubled f = doubled({.name = "n", .policy = AxisPolicy::kAllowList, .sizes = {2, 5}});
  for (const std::int64_t size : {2, 3, 5, 2, 3, 5, 2, 3, 5})
    call(f, size);

  EXPECT_EQ(f.stats().recordings, 2u);
  EXPECT_EQ(f.stats().replays, 2u);
  EXPECT_EQ(skips(f, SkipReason::kSizeNotListed), 3u);
  EXPECT_THAT(to_string(f.explain(random_tensor({4}))),
              HasSubstr("axis 'n' is 4, which is none of the 2 sizes of its list"));
}

// Acceptance: trees 114.
TEST_P(AxisPoliciesTest, BeyondTheCapSizesRunEagerly) {
  const Doubled f = doubled({.name = "n", .max_sizes = 2});
  for (const std::int64_t size : {2, 2, 3, 3, 4, 4, 2, 3})
    call(f, size);

  EXPECT_EQ(f.stats().recordings, 2u);
  EXPECT_EQ(f.stats().replays, 2u);
  EXPECT_EQ(skips(f, SkipReason::kSizeLimit), 2u);
}

// Acceptance: trees 114.
TEST_P(AxisPoliciesTest, BeyondTheCapTheSizeUsedLongestAgoGoes) {
  const Doubled f = doubled({.name = "n", .max_sizes = 2, .at_max_sizes = AtMaxSizes::kEvict});
  for (const std::int64_t size : {2, 2, 3, 3, 2, 4})  // size 4 evicts size 3
    call(f, size);
  EXPECT_EQ(f.stats().evictions, 1u);
  EXPECT_EQ(recording_count(), 1u);

  call(f, 4);
  call(f, 2);
  EXPECT_EQ(f.stats().replays, 2u);
  EXPECT_EQ(f.stats().recordings, 3u);
  call(f, 3);  // counts as a new size; size 4 is evicted
  EXPECT_EQ(f.stats().warm_ups, 4u);
  EXPECT_EQ(f.stats().skipped(), 0u);
  validate();
}

TEST_P(AxisPoliciesTest, AWarmUpThatFailsMakesNoSizeGo) {
  bool fails = false;
  const Doubled f =
      compile(context(), "f",
              [&](Tensor x) {
                if (fails) throw std::runtime_error("not now");
                return affine(x, 2, 0);
              },
              {.inputs = {{.dynamic = {{0, "n"}}}},
               .axes = {{.name = "n", .max_sizes = 1, .at_max_sizes = AtMaxSizes::kEvict}}});
  call(f, 2);
  call(f, 2);
  fails = true;

  EXPECT_THROW(call(f, 3), std::runtime_error);

  call(f, 2);
  EXPECT_EQ(f.stats().replays, 1u);
  EXPECT_EQ(f.stats().evictions, 0u);
}

TEST_P(AxisPoliciesTest, BeyondTheCapTheNextLargerRecordingServes) {
  const Doubled f = doubled({.name = "n", .max_sizes = 2, .at_max_sizes = AtMaxSizes::kNextLarger});
  for (const std::int64_t size : {8, 8, 5, 5})
    call(f, size);
  const int runs = runs_;

  for (const std::int64_t size : {4, 5, 6, 7, 8, 1})
    call(f, size);
  EXPECT_EQ(runs_, runs);
  EXPECT_EQ(f.stats().replays, 6u);
  const Explanation why = f.explain(random_tensor({6}));
  EXPECT_EQ(why.outcome, Outcome::kReplay);
  EXPECT_EQ(why.axes, (std::vector<AxisInUse>{{"n", 6, 8}}));

  call(f, 9);
  EXPECT_EQ(skips(f, SkipReason::kSizeLimit), 1u);
}

TEST_P(AxisPoliciesTest, InputsThatDisagreeAreNamedWithBothSizes) {
  const auto f = compile(
      context(), "f", [](Tensor x, Tensor y) { return add(x, y); },
      {.inputs = {{.name = "x", .dynamic = {{0, "n"}}}, {.name = "y", .dynamic = {{1, "n"}}}}});
  EXPECT_THAT(
      error_of([&] {
        (void)f(random_tensor({2, 3}), random_tensor({2, 3}));
      }),
      HasSubstr(
          "axis 'n' of 'f' is 2 in axis 0 of input 0 'x', and 3 in axis 1 of input 1 'y': all "
          "inputs of a call must agree"));
  EXPECT_THAT(error_of([&] {
                (void)f(random_tensor({2, 2}), random_tensor({2}));
              }),
              HasSubstr("input 1 'y' of 'f' has dynamic axis 'n' as its axis 1; float32 {2}"));
  EXPECT_THAT(error_of([&] {
                (void)f(random_tensor({2, 2}), Tensor());
              }),
              HasSubstr("input 1 'y' of 'f' is a null tensor"));
  EXPECT_EQ(f.stats().failures, 3u);
  EXPECT_EQ(f.stats().warm_ups, 0u);
}

TEST_P(AxisPoliciesTest, AnInputThatWasNotGivenIsNamed) {
  const auto f = compile(context(), "f",
                         [](std::span<const Tensor> inputs) { return affine(inputs[0], 2, 0); },
                         {.inputs = {{}, {.name = "mask", .dynamic = {{0, "n"}}}}});
  const auto g = compile(context(), "g",
                         [](std::span<const Tensor> inputs) { return affine(inputs[0], 2, 0); },
                         {.inputs = {{}, {.name = "weights", .is_static = true}}});
  const Tensor x = random_tensor({2});

  EXPECT_THAT(
      error_of([&] { (void)f(std::span(&x, 1)); }),
      HasSubstr(
          "input 1 'mask' of 'f' has dynamic axis 'n' and was not given: 1 input is given, and "
          "at least 2 are expected"));
  EXPECT_THAT(
      error_of([&] { (void)g(std::span(&x, 1)); }),
      HasSubstr("static input 1 'weights' of 'g' was not given: 1 input is given, and at least 2"));
}

TEST_P(AxisPoliciesTest, AnOutputWithoutTheAxisItPromisedIsNamed) {
  const auto f = compile(
      context(), "f", [](Tensor x) { return affine(x.slice(0, 0, 1), 2, 0); },
      {.inputs = {{.dynamic = {{0, "n"}}}}, .outputs = {{.name = "y", .dynamic = {{0, "n"}}}}});
  const auto g = compile(
      context(), "g", [](Tensor x) { return affine(x, 2, 0); },
      {.inputs = {{.dynamic = {{0, "n"}}}}, .outputs = {{.name = "y", .dynamic = {{1, "n"}}}}});
  const auto h = compile(
      context(), "h", [](Tensor x) { return affine(x, 2, 0); },
      {.inputs = {{.dynamic = {{0, "n"}}}}, .outputs = {{}, {.name = "y", .dynamic = {{0, "n"}}}}});
  const auto larger = compile(
      context(), "larger", [](Tensor x) { return empty({x.dim(0) + 1}, x.dtype()); },
      {.inputs = {{.dynamic = {{0, "n"}}}}, .outputs = {{.name = "y", .dynamic = {{0, "n"}}}}});

  EXPECT_THAT(error_of([&] { (void)f(random_tensor({3})); }),
              HasSubstr("output 0 'y' of 'f' is float32 {1} on"));
  EXPECT_THAT(error_of([&] { (void)f(random_tensor({3})); }),
              HasSubstr("its axis 0 is the dynamic axis 'n', of which the function saw 3"));
  EXPECT_THAT(error_of([&] { (void)larger(random_tensor({3})); }),
              HasSubstr("output 0 'y' of 'larger' is float32 {4} on"));
  EXPECT_THAT(error_of([&] { (void)g(random_tensor({3})); }),
              HasSubstr("output 0 'y' of 'g' has dynamic axis 'n' as its axis 1; float32 {3}"));
  EXPECT_THAT(
      error_of([&] { (void)h(random_tensor({3})); }),
      HasSubstr("output 1 'y' of 'h' has dynamic axis 'n' and was not returned: 1 was returned, "
                "and at least 2"));
  EXPECT_EQ(stats().live_outputs, 0u);
}

TEST_P(AxisPoliciesTest, SwitchedOffAFunctionRunsWhateverTheSize) {
  const Doubled f =
      doubled({.name = "n", .policy = AxisPolicy::kAllowList, .sizes = {2}}, /*enabled=*/false);
  call(f, 2);
  call(f, 7);

  EXPECT_EQ(skips(f, SkipReason::kDisabled), 2u);
}

TEST_P(AxisPoliciesTest, OfTheRecordingsThatHoldACallTheOneWithTheLeastWorkServes) {
  const AxisOptions two_sizes{.max_sizes = 2, .at_max_sizes = AtMaxSizes::kNextLarger};
  AxisOptions rows = two_sizes, columns = two_sizes;
  rows.name = "rows";
  columns.name = "columns";
  const auto f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); },
              {.inputs = {{.dynamic = {{0, "rows"}, {1, "columns"}}}}, .axes = {rows, columns}});
  for (int call = 0; call < 2; ++call) {
    (void)f(random_tensor({16, 4}));
    (void)f(random_tensor({4, 8}));
  }

  const Explanation why = f.explain(random_tensor({3, 3}));
  EXPECT_EQ(why.outcome, Outcome::kReplay);
  EXPECT_EQ(why.axes, (std::vector<AxisInUse>{{"rows", 3, 4}, {"columns", 3, 8}}));
}

TEST_P(AxisPoliciesTest, ARecordingOfALargerExactAxisDoesNotServe) {
  const auto f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); },
              {.inputs = {{.dynamic = {{0, "rows"}, {1, "columns"}}}},
               .axes = {{.name = "rows", .max_sizes = 1, .at_max_sizes = AtMaxSizes::kNextLarger}},
               .outputs = {{.dynamic = {{0, "rows"}, {1, "columns"}}}}});
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({8, 5}));

  const std::vector<float> x = random_floats(12);
  for (int call = 0; call < 3; ++call) {
    const Tensor y = f(tensor({3, 4}, x));
    EXPECT_EQ(y.dim(1), 4);
    EXPECT_EQ(values(y), affine_of(x, 2, 0));
  }
  EXPECT_EQ(f(random_tensor({3, 5})).dim(0), 3);
  EXPECT_EQ(f.stats().replays, 1u);
}

// Its outermost stride equals that of a row-major tensor.
TEST_P(AxisPoliciesTest, AnOutputThatIsPassedOnTransposedIsSeenSo) {
  const auto make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  const auto f = compile(context(), "f", [](Tensor x) { return affine(x, 1, 1); },
                         {.inputs = {{.dynamic = {{0, "n"}}}}, .buckets = {{"n", {2}}}});
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(8);
    const std::vector<float> transposed{x[0], x[2], x[1], x[3], x[4], x[6], x[5], x[7]};
    const Tensor made = make(tensor({2, 2, 2}, x));
    EXPECT_EQ(values(f(made.transpose(1, 2))), affine_of(transposed, 2, 1));
  }
}

TEST_P(AxisPoliciesTest, WritesBehindTheSizeOfAMutatedInputDoNotReachItsMemory) {
  const auto make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  const auto bump = compile(context(), "bump",
                            [](Tensor x) {
                              update(x, 1, 1);
                              return affine(x, 1, 0);
                            },
                            {.inputs = {{.is_mutated = true,
                                         .dynamic = {{0, "n"}},
                                         .padding = {Padding::Kind::kAnything}}},
                             .buckets = {{"n", {8}}}});
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(8);
    const Tensor made = make(tensor({8}, x));
    std::vector<float> expected = affine_of(x, 2, 0);
    for (int i = 0; i < 3; ++i)
      expected[i] += 1;

    (void)bump(made.slice(0, 0, 3));

    EXPECT_EQ(values(made), expected);
  }
}

}  // namespace
}  // namespace cgtree::testing
