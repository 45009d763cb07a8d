// Inputs that share memory: a copy never separates them.
#include <gtest/gtest.h>

#include "tests/support/core_fixture.h"

namespace cgtree::testing {
namespace {

class OverlapTest : public TreeTest {
 protected:
  // Adds one to x, then copies y.
  CompiledFunction<Tensor(Tensor, Tensor)> write_and_read(bool first_is_static = false,
                                                          bool second_is_static = false) {
    return compile(context(), "f",
                   [](Tensor x, Tensor y) {
                     update(x, 1, 1);
                     return affine(y, 1, 0);
                   },
                   {.inputs = {{.name = "x", .is_static = first_is_static, .is_mutated = true},
                               {.name = "y", .is_static = second_is_static}}});
  }
  static void expect_overlap(const Explanation& why) {
    ASSERT_EQ(why.mismatches.size(), 1u);
    EXPECT_EQ(why.mismatches[0].kind, Mismatch::Kind::kOverlap);
    EXPECT_EQ(why.mismatches[0].input, 0u);
    EXPECT_EQ(why.mismatches[0].other, 1u);
  }
  template <typename Function>
  static std::uint64_t overlaps(const Function& function) {
    return function.stats().skips[static_cast<int>(SkipReason::kOverlappingInputs)];
  }
};
CGTREE_ON_ALL_DEVICES(OverlapTest);

TEST_P(OverlapTest, AWriteIsSeenThroughTheOtherInput) {
  for (const bool first_is_static : {false, true}) {
    CompiledFunction f = write_and_read(first_is_static);
    const Tensor x = tensor({3}, std::vector<float>{1, 2, 3});
    for (int call = 1; call <= 4; ++call)
      EXPECT_EQ(values(f(x, x))[0], 1 + call);
    EXPECT_EQ(overlaps(f), 4u);
  }
}

TEST_P(OverlapTest, ARecordingIsNotReplayedForInputsThatNowOverlap) {
  CompiledFunction f = write_and_read();
  const Tensor x = random_tensor({4});
  for (int call = 0; call < 4; ++call)
    (void)f(x, random_tensor({4}));
  ASSERT_EQ(f.stats().replays, 2u);

  const Tensor all = tensor({6}, std::vector<float>{0, 1, 2, 3, 4, 5});
  const Tensor given = all.slice(0, 0, 4), other = all.slice(0, 2, 6);
  const Explanation why = f.explain(given, other);
  EXPECT_EQ(why.outcome, Outcome::kRunEagerly);
  EXPECT_EQ(why.skip_reason, SkipReason::kOverlappingInputs);
  expect_overlap(why);
  EXPECT_EQ(values(f(given, other)), (std::vector<float>{3, 4, 4, 5}));
  EXPECT_EQ(overlaps(f), 1u);

  (void)f(x, random_tensor({4}));
  EXPECT_EQ(f.stats().replays, 3u);
}

TEST_P(OverlapTest, BesideInputsThatStayAnotherIsSeenThatMovesOntoThem) {
  constexpr std::size_t kEach = 8;  // enough for a run that is checked at once
  std::vector<InputOptions> options(kEach, {.is_static = true, .is_mutated = true});
  options.resize(2 * kEach);
  const auto f = compile(context(), "f",
                         [](std::span<const Tensor> x) {
                           for (std::size_t i = 0; i < kEach; ++i)
                             update(x[i], 1, 1);
                           return affine(x[2 * kEach - 1], 1, 0);
                         },
                         {.inputs = options});
  std::vector<Tensor> x;
  for (std::size_t i = 0; i < 2 * kEach; ++i)
    x.push_back(random_tensor({4}));
  for (int call = 0; call < 6; ++call)
    (void)f(x);
  ASSERT_EQ(f.stats().replays, 4u);

  x.back() = x.front();
  std::vector<float> expected = values(x.front());
  for (float& one : expected)
    ++one;
  EXPECT_EQ(values(f(x)), expected);
  EXPECT_EQ(f.stats().replays, 4u);
}

TEST_P(OverlapTest, ExplainNamesBothBeforeAnythingIsRecorded) {
  CompiledFunction f = write_and_read();
  const Tensor x = random_tensor({2});
  expect_overlap(f.explain(x, x));
}

TEST_P(OverlapTest, TwoStaticInputsAtTheirAddressesAreFine) {
  CompiledFunction f = write_and_read(true, true);
  const Tensor x = tensor({3}, std::vector<float>{1, 2, 3});
  for (int call = 1; call <= 4; ++call)
    EXPECT_EQ(values(f(x, x))[0], 1 + call);
  EXPECT_EQ(f.stats().replays, 2u);
}

TEST_P(OverlapTest, AManagedInputGivenTwiceIsFine) {
  CompiledFunction make = compile(context(), "make", [](Tensor x) { return affine(x, 1, 0); });
  CompiledFunction f = write_and_read();
  for (int step = 0; step < 4; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(3);
    const Tensor made = make(tensor({3}, x));
    EXPECT_EQ(values(f(made, made)), affine_of(x, 1, 1));
  }
  EXPECT_EQ(f.stats().replays, 2u);
}

TEST_P(OverlapTest, TheSameTensorMayBeReadTwice) {
  CompiledFunction f = compile(context(), "f", [](Tensor x, Tensor y) { return add(x, y); });
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3);
    const Tensor given = tensor({3}, x);
    EXPECT_EQ(values(f(given, given)), affine_of(x, 2, 0));
  }
  EXPECT_EQ(f.stats().replays, 2u);
}

TEST_P(OverlapTest, NeighboursAndColumnsOfOneTableAreApart) {
  CompiledFunction f = write_and_read();
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(12);
    const Tensor table = tensor({3, 4}, x);
    const std::vector<float> copied = values(f(table.slice(1, 0, 2), table.slice(1, 2, 4)));
    EXPECT_EQ(copied[0], x[2]);
    EXPECT_EQ(values(table)[0], x[0] + 1);
    EXPECT_EQ(values(table)[2], x[2]);
  }
  EXPECT_EQ(f.stats().replays, 2u);
}

// A strided input with a dynamic axis extends further than its bucket.
TEST_P(OverlapTest, AStridedPaddedInputIsComparedByWhatItReaches) {
  CompiledFunction f = compile(context(), "f",
                               [](Tensor x, Tensor y) {
                                 update(x, 1, 1);
                                 return affine(y, 1, 0);
                               },
                               {.inputs = {{.is_mutated = true}, {.dynamic = {{0, "n"}}}},
                                .buckets = {{"n", {4}}},
                                .outputs = {{.dynamic = {{0, "n"}}}}});
  for (int call = 0; call < 4; ++call)
    (void)f(random_tensor({1, 8}), random_tensor({4, 2}));
  ASSERT_EQ(f.stats().replays, 2u);

  const std::vector<float> all = random_floats(32);
  const Tensor table = tensor({4, 8}, all);
  const Tensor y = f(table.slice(0, 3, 4), table.slice(1, 0, 2));
  context().synchronize();

  EXPECT_EQ(values(table)[24], all[24] + 1);
  EXPECT_EQ(values(y.slice(0, 3, 4).slice(1, 0, 1).reshape({1}))[0], all[24] + 1);
  EXPECT_EQ(overlaps(f), 1u);
}

TEST_P(OverlapTest, ABufferWithinReachOfAStridedPaddedInputIsRefused) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 1, 0); },
                               {.inputs = {{.dynamic = {{0, "n"}}}},
                                .buckets = {{"n", {4}}},
                                .outputs = {{.dynamic = {{0, "n"}}}}});
  const std::vector<float> all = random_floats(64);
  for (int call = 0; call < 4; ++call)
    (void)f.into(random_tensor({4, 2}))(random_tensor({4, 2}));
  ASSERT_EQ(f.stats().replays, 2u);

  const Tensor table = tensor({8, 8}, all);
  const Tensor buffer = table.slice(0, 3, 4).reshape({4, 2});
  EXPECT_THROW((void)f.into(buffer)(table.slice(0, 0, 4).slice(1, 0, 2)), InvalidArgument);
  EXPECT_EQ(values(table), all);
}

// A small input at the end of a large buffer, and at the end of a large input.
TEST_P(OverlapTest, ASmallTensorInTheTailOfALargeOneIsSeen) {
  CompiledFunction f = compile(context(), "f", [](Tensor, Tensor z) { return affine(z, 2, 0); });
  CompiledFunction g = compile(context(), "g",
                               [](Tensor x, Tensor z) {
                                 update(x, 1, 1);
                                 return affine(z, 1, 0);
                               },
                               {.inputs = {{.is_mutated = true}}});
  for (int call = 0; call < 4; ++call) {
    (void)f.into(random_tensor({16}))(random_tensor({2}), random_tensor({16}));
    (void)g(random_tensor({2}), random_tensor({16}));
  }
  ASSERT_EQ(f.stats().replays, 2u);
  ASSERT_EQ(g.stats().replays, 2u);

  const std::vector<float> all = random_floats(16);
  const Tensor large = tensor({16}, all), small = large.slice(0, 14, 16);
  EXPECT_THROW((void)f.into(large)(small, random_tensor({16})), InvalidArgument);
  EXPECT_EQ(values(large), all);
  EXPECT_EQ(values(g(small, large))[15], all[15] + 1);
  EXPECT_EQ(overlaps(g), 1u);
}

}  // namespace
}  // namespace cgtree::testing
