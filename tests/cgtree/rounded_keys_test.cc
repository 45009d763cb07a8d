// Integers of keys with options: they are rounded up like sizes of axes, and the work reads the
// rounded value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "extensions/sizes/precapture.h"
#include "extensions/sizes/suggest_buckets.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::ThrowsMessage;

// y = k * x, with k from the key as the work sees it.
class RoundedKeysTest : public TreeTest {
 protected:
  using Function = CompiledFunction<Tensor(Tensor)>;

  Function scaled(CompileOptions options) {
    return compile(
        context(), "scaled",
        [this](Tensor x) {
          ++runs_;
          return affine(x, static_cast<float>(current_key().number("k")), 0);
        },
        std::move(options));
  }
  Function scaled(AxisOptions rule) { return scaled({.keys = {std::move(rule)}}); }

  void call(const Function& f, std::int64_t k, std::int64_t seen) {
    const std::vector<float> x = random_floats(4);
    EXPECT_EQ(values(f.keyed({{"k", k}})(tensor({4}, x))),
              affine_of(x, static_cast<float>(seen), 0))
        << k;
  }
  static std::uint64_t skips(const Function& function, SkipReason reason) {
    return function.stats().skips[static_cast<int>(reason)];
  }

  int runs_ = 0;
};
CGTREE_ON_ALL_DEVICES(RoundedKeysTest);

TEST_P(RoundedKeysTest, TheWorkSeesTheNextValueOfTheListAndSharesItsRecordings) {
  const Function f = scaled({.name = "k", .policy = AxisPolicy::kBuckets, .sizes = {0, 4, 16}});
  int above = 0;
  for (int i = 0; i < 100; ++i) {
    const auto k = static_cast<std::int64_t>(random_() % 20);
    above += k > 16;
    call(f, k, k == 0 ? 0 : k <= 4 ? 4 : k <= 16 ? 16 : k);
  }
  EXPECT_EQ(skips(f, SkipReason::kAboveLargestBucket), static_cast<std::uint64_t>(above));
  EXPECT_LE(runs_, 3 * 2 + above);
}

TEST_P(RoundedKeysTest, MultiplesAndPowersOfTwoNeedNoList) {
  const Function multiples =
      scaled({.name = "k", .policy = AxisPolicy::kMultiples, .multiple_of = 6});
  const Function powers = scaled({.name = "k", .policy = AxisPolicy::kPowersOfTwo, .largest = 64});
  for (int i = 0; i < 60; ++i) {
    const auto k = static_cast<std::int64_t>(random_() % 80);
    call(multiples, k, (k + 5) / 6 * 6);
    call(powers, k, k > 64 ? k : static_cast<std::int64_t>(std::bit_ceil<std::uint64_t>(k)));
  }
  EXPECT_EQ(multiples.stats().skipped(), 0u);
}

TEST_P(RoundedKeysTest, AboveTheLargestIsAnErrorWhereOptionsSaySo) {
  const Function f = scaled({.name = "k",
                             .policy = AxisPolicy::kPowersOfTwo,
                             .largest = 8,
                             .above_largest = AboveLargest::kThrow});
  call(f, 7, 8);
  EXPECT_THAT(
      [&] { call(f, 9, 9); },
      ThrowsMessage<InvalidArgument>(HasSubstr("'k' of the key is 9, the largest to pad to is 8")));
}

// Parts without options, axes of tensors and buffers are unaffected.
TEST_P(RoundedKeysTest, OtherPartsAndAxesAreCombinedWithIt) {
  const auto f = compile(context(), "mixed",
                         [this](Tensor x) {
                           ++runs_;
                           const Key key = current_key();
                           return affine(x, static_cast<float>(key.number("k")),
                                         key.string("adapter") == "en");
                         },
                         {.inputs = {{.dynamic = {{0, "n"}}}},
                          .buckets = {{"n", {4, 8}}},
                          .keys = {{.name = "k", .policy = AxisPolicy::kBuckets, .sizes = {2, 4}}},
                          .outputs = {{.dynamic = {{0, "n"}}}}});
  for (int i = 0; i < 150; ++i) {
    const auto n = static_cast<std::int64_t>(1 + random_() % 8);
    const auto k = static_cast<std::int64_t>(1 + random_() % 4);
    const bool is_english = random_() % 2 == 0;
    const std::vector<float> x = random_floats(n);
    const std::vector<float> expected = affine_of(x, k <= 2 ? 2 : 4, is_english);
    const Key key{{"adapter", is_english ? "en" : "de"}, {"k", k}};
    if (random_() % 2 == 0) {
      EXPECT_EQ(values(f.keyed(key)(tensor({n}, x))), expected);
    } else {
      const Tensor buffer = tensor({n}, std::vector<float>(n, NAN));
      (void)f.keyed(key).into(buffer)(tensor({n}, x));
      EXPECT_EQ(values(buffer), expected);
    }
  }
  EXPECT_LE(runs_, 2 * 2 * 2 * 2 * 3);
  EXPECT_EQ(f.stats().skipped(), 0u);
}

TEST_P(RoundedKeysTest, ExplainNamesBothValues) {
  const Function f = scaled({.name = "k", .policy = AxisPolicy::kBuckets, .sizes = {4}});
  const Tensor x = random_tensor({4});
  EXPECT_THAT(to_string(f.keyed({{"k", 3}}).explain(x)), HasSubstr("key 'k': 3, rounded up to 4"));
  EXPECT_THAT(to_string(f.keyed({{"k", 5}}).explain(x)),
              HasSubstr("'k' of the key is 5, the largest of its 1 buckets is 4"));
  call(f, 3, 4);
  call(f, 2, 4);
  EXPECT_EQ(f.keyed({{"k", 1}}).explain(x).outcome, Outcome::kReplay);
  EXPECT_EQ(runs_, 2);
  EXPECT_THAT(f.histogram("k"), ElementsAre(Pair(2, 1), Pair(3, 1)));
}

TEST_P(RoundedKeysTest, AMissingValueIsPaddedToARecordedOneOrRunsEagerly) {
  const MakeInputs make = [&](const CallSizes&) { return std::vector{random_tensor({4})}; };
  for (const WhileMissing policy : {WhileMissing::kNextLarger, WhileMissing::kRunEagerly}) {
    const Function f =
        scaled({.keys = {{.name = "k", .policy = AxisPolicy::kBuckets, .sizes = {2, 4, 8}}},
                .while_missing = policy});
    EXPECT_EQ(precapture(f, {.sizes = {{"k", {8}}}}, make).entries.size(), 1u);
    const bool is_padded = policy == WhileMissing::kNextLarger;
    for (const int k : {1, 3, 5})
      call(f, k, is_padded || k == 5 ? 8 : k);
  }
}

TEST_P(RoundedKeysTest, AtMaxSizesTheValueUsedLongestAgoIsEvicted) {
  const Function f = scaled({.name = "k", .max_sizes = 2, .at_max_sizes = AtMaxSizes::kEvict});
  for (const int k : {1, 1, 2, 2, 3, 3})
    call(f, k, k);
  EXPECT_EQ(f.stats().kept_recordings, 2u);
  EXPECT_EQ(f.stats().evictions, 1u);
}

TEST_P(RoundedKeysTest, ACallWhoseKeyDoesNotFitTheOptionsIsRefusedByName) {
  const Function f = scaled({.name = "k", .policy = AxisPolicy::kPowersOfTwo});
  const Tensor x = random_tensor({4});
  const auto refused = [](const char* what) {
    return ThrowsMessage<InvalidArgument>(HasSubstr(what));
  };
  EXPECT_THAT([&] { (void)f(x); },
              refused("'scaled' has options for 'k' of the key, and a call with the key [], where "
                      "it is missing"));
  EXPECT_THAT([&] { (void)f.keyed({{"K", 1}})(x); }, refused("missing"));
  EXPECT_THAT([&] { (void)f.keyed({{"k", "1"}})(x); }, refused("it is a string"));
  EXPECT_THAT([&] { (void)f.keyed({{"k", -1}})(x); }, refused("it is negative"));
  const std::string longest(Key::kMaxText - 8, 'x');
  EXPECT_THAT(
      [&] {
        (void)f.keyed({{"k", 9}, {"a", longest}})(x);
      },
      refused("longer than 126 bytes"));
  EXPECT_THROW((void)f.explain(x), InvalidArgument);
  call(f, 3, 4);
}

TEST_P(RoundedKeysTest, ThereIsNoLengthOfAKeyOnTheDevice) {
  const auto f = compile(context(), "asks", [](Tensor) { return axis_length("k"); },
                         {.keys = {{.name = "k", .policy = AxisPolicy::kPowersOfTwo}}});
  EXPECT_THAT(
      [&] {
        (void)f.keyed({{"k", 1}})(random_tensor({4}));
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("current_key() has the value")));
}

// The work is estimated by the product of axes and keys: 2 * 2 is more than 3 times 1 * 1.
TEST_P(RoundedKeysTest, ACallThatPaddingWouldMakeMuchLargerRunsEagerly) {
  const auto f =
      compile(context(), "wasteful",
              [](Tensor x) { return affine(x, static_cast<float>(current_key().number("k")), 0); },
              {.inputs = {{.dynamic = {{0, "n"}}}},
               .buckets = {{"n", {2, 8}}},
               .keys = {{.name = "k", .policy = AxisPolicy::kBuckets, .sizes = {2, 8}}},
               .max_waste = 3,
               .outputs = {{.dynamic = {{0, "n"}}}}});
  std::uint64_t expected = 0;
  for (int i = 0; i < 100; ++i) {
    const auto n = static_cast<std::int64_t>(1 + random_() % 8);
    const auto k = static_cast<std::int64_t>(1 + random_() % 8);
    const auto up = [](std::int64_t size) { return size <= 2 ? 2 : 8; };
    const bool is_eager = up(n) * up(k) > 3 * n * k;
    expected += is_eager;
    const std::vector<float> x = random_floats(n);
    EXPECT_EQ(values(f.keyed({{"k", k}})(tensor({n}, x))),
              affine_of(x, static_cast<float>(is_eager ? k : up(k)), 0));
  }
  EXPECT_EQ(f.stats().skips[static_cast<int>(SkipReason::kTooMuchPadding)], expected);
  const Explanation why = f.keyed({{"k", 3}}).explain(random_tensor({3}));
  EXPECT_EQ(why.skip_reason, SkipReason::kTooMuchPadding);
  EXPECT_THAT(why.detail, HasSubstr("axis 'n' is 3, padded to 8, 'k' of the key is 3, padded to 8: "
                                    "7.11 times the work, max_waste is 3"));
}

TEST_P(RoundedKeysTest, PrecaptureRecordsAllCombinationsTheLargestFirst) {
  const auto f = compile(context(), "mixed",
                         [this](Tensor x) {
                           ++runs_;
                           return affine(x, static_cast<float>(current_key().number("k")), 0);
                         },
                         {.inputs = {{.dynamic = {{0, "n"}}}},
                          .buckets = {{"n", {2, 4}}},
                          .keys = {{.name = "k", .policy = AxisPolicy::kPowersOfTwo, .largest = 2}},
                          .while_missing = WhileMissing::kRunEagerly,
                          .outputs = {{.dynamic = {{0, "n"}}}}});
  std::vector<std::string> told;
  const PrecaptureReport report = precapture(
      f,
      {.key = {{"adapter", {"en", "de"}}, {"k", {}}},
       .held_outputs = 0,
       .progress = [&](const Precaptured& entry) { told.push_back(to_string(entry.sizes)); }},
      [&](const CallSizes& sizes) {
        EXPECT_EQ(sizes["k"], sizes.key().number("k"));
        return std::vector<Tensor>{random_tensor({sizes["n"]})};
      });
  EXPECT_THAT(told,
              ElementsAre("n = 4, key [adapter=\"en\" k=2]", "n = 4, key [adapter=\"de\" k=2]",
                          "n = 2, key [adapter=\"en\" k=2]", "n = 2, key [adapter=\"de\" k=2]",
                          "n = 4, key [adapter=\"en\" k=1]", "n = 4, key [adapter=\"de\" k=1]",
                          "n = 2, key [adapter=\"en\" k=1]", "n = 2, key [adapter=\"de\" k=1]"));
  EXPECT_EQ(report.count(Precaptured::Outcome::kRecorded), 8u);
  runs_ = 0;
  for (int i = 0; i < 40; ++i) {
    const auto n = static_cast<std::int64_t>(1 + random_() % 4);
    const auto k = static_cast<std::int64_t>(1 + random_() % 2);
    const std::vector<float> x = random_floats(n);
    const Key key{{"adapter", random_() % 2 == 0 ? "en" : "de"}, {"k", k}};
    EXPECT_EQ(values(f.keyed(key)(tensor({n}, x))), affine_of(x, static_cast<float>(k), 0));
  }
  EXPECT_EQ(runs_, 0);
}

TEST_P(RoundedKeysTest, PrecaptureNeedsValuesForEachPart) {
  const MakeInputs make = [&](const CallSizes&) { return std::vector{random_tensor({4})}; };
  const Function f = scaled({.name = "k", .policy = AxisPolicy::kMultiples, .multiple_of = 4});
  EXPECT_THAT([&] { (void)precapture(f, {}, make); },
              ThrowsMessage<InvalidArgument>(HasSubstr("the key's 'k' has neither")));
  EXPECT_EQ(precapture(f, {.key = {{"k", {8, 4}}}}, make).entries.size(), 2u);
  const Function endless = scaled({.name = "k",
                                   .policy = AxisPolicy::kMultiples,
                                   .multiple_of = 2,
                                   .largest = std::size_t{1} << 40});
  EXPECT_THROW((void)precapture(endless, {}, make), InvalidArgument);
  const Function plain = scaled(CompileOptions{});
  EXPECT_THROW((void)precapture(plain, {}, make), InvalidArgument);
  EXPECT_EQ(precapture(plain, {.key = {{"k", {1, 2, 3}}}}, make).entries.size(), 3u);
  EXPECT_THROW((void)precapture(plain, {.sizes = {{"k", {1}}}, .key = {{"k", {1}}}}, make),
               InvalidArgument);
}

TEST_P(RoundedKeysTest, SizesOfAllAxesAreCountedTogetherAndBucketsSuggested) {
  const auto f =
      compile(context(), "mixed",
              [](Tensor x) { return affine(x, static_cast<float>(current_key().number("k")), 0); },
              {.inputs = {{.dynamic = {{0, "n"}}}},
               .keys = {{.name = "k"}},
               .outputs = {{.dynamic = {{0, "n"}}}}});
  const auto call = [&](std::int64_t n, int k) { (void)f.keyed({{"k", k}})(random_tensor({n})); };
  for (int i = 0; i < 5; ++i) {
    call(8, 1);
    call(2, 4);
  }
  call(8, 0);

  EXPECT_THAT(f.histogram(),
              ElementsAre(Pair(Sizes{2, 4}, 5), Pair(Sizes{8, 0}, 1), Pair(Sizes{8, 1}, 5)));
  const std::vector<Buckets> suggested = suggest_buckets(f, {.max_combinations = 4});
  ASSERT_EQ(suggested.size(), 2u);
  EXPECT_EQ(suggested[0].axis, "n");
  EXPECT_THAT(suggested[0].sizes, ElementsAre(2, 8));
  EXPECT_THAT(suggested[1].sizes, ElementsAre(1, 4));
}

}  // namespace
}  // namespace cgtree::testing
