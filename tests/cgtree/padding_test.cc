// The contents of padded rows, and the code that reads them: slots of a cache, functions that
// others call, and verification. The kernels of these tests have bodies for the host only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "cgtree/cgtree.h"
#include "extensions/sizes/precapture.h"
#include "extensions/verify/verify.h"
#include "interop/device/kernel.h"
#include "tests/support/captured_log.h"
#include "tests/support/steps.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int32_t>;
using Floats = std::vector<float>;

constexpr std::int64_t kSlots = 16;

// cache[slots[i]] = values[i], where the slot is not negative.
struct Scatter {
  const std::int32_t* slots;
  const float* values;
  float* cache;
  void operator()(std::int64_t i) const {
    if (slots[i] >= 0) cache[slots[i]] = values[i];
  }
};

// cache[i] = values[i].
struct Write {
  const float* values;
  float* cache;
  void operator()(std::int64_t i) const { cache[i] = values[i]; }
};

// *y = the largest of x.
struct Largest {
  const float* x;
  std::int64_t count;
  float* y;
  void operator()(std::int64_t) const { *y = *std::max_element(x, x + count); }
};

// *y = the sum of x.
struct Sum {
  const float* x;
  std::int64_t count;
  float* y;
  void operator()(std::int64_t) const {
    *y = 0;
    for (std::int64_t i = 0; i < count; ++i)
      *y += x[i];
  }
};

// y = 2 x; NaN for rows of length 0.
struct Attend {
  const std::int32_t* lengths;
  const float* x;
  float* y;
  void operator()(std::int64_t i) const {
    y[i] = lengths[i] == 0 ? std::numeric_limits<float>::quiet_NaN() : 2 * x[i];
  }
};

template <typename Body>
Tensor reduced(const Tensor& x) {
  const Tensor y = empty({1}, DType::kFloat32);
  parallel_for(current_stream(), 1, Body{x.data<float>(), x.elements(), y.data<float>()});
  return y;
}

class PaddingTest : public ::testing::Test {
 protected:
  using Decode = CompiledFunction<Tensor(Tensor, Tensor, Tensor)>;
  using Reduce = CompiledFunction<Tensor(Tensor)>;

  Tensor floats(const Floats& values) {
    return from_host<float>({static_cast<std::int64_t>(values.size())}, values, device_);
  }
  Tensor ints(const Ints& values) {
    return from_host<std::int32_t>({static_cast<std::int64_t>(values.size())}, values, device_);
  }
  Floats random_floats(std::int64_t count) {
    Floats values(static_cast<std::size_t>(count));
    for (float& value : values)
      value = -1 - static_cast<float>(random_() % 1000);
    return values;
  }
  static CompileOptions slots_into_cache(Padding padding, std::vector<std::int64_t> buckets) {
    return {.inputs = {{.name = "slots", .dynamic = {{0, "rows"}}, .padding = padding},
                       {.name = "values", .dynamic = {{0, "rows"}}},
                       {.name = "cache", .is_static = true, .is_mutated = true}},
            .buckets = {{"rows", std::move(buckets)}},
            .outputs = {{.dynamic = {{0, "rows"}}}}};
  }
  Decode decode(CompileOptions options) {
    return compile(
        context_, "decode",
        [](Tensor slots, Tensor values, Tensor cache) {
          parallel_for(
              current_stream(), slots.elements(),
              Scatter{slots.data<std::int32_t>(), values.data<float>(), cache.data<float>()});
          return affine(values, 2, 0);
        },
        std::move(options));
  }
  // Calls it with random slots, and checks the whole cache after each call.
  void expect_cache(const Decode& f, std::vector<std::int64_t> sizes) {
    expect_cache(f, std::move(sizes), floats(Floats(kSlots, 7)));
  }
  void expect_cache(const Decode& f, std::vector<std::int64_t> sizes, const Tensor& cache) {
    Floats expected = cache.to_vector<float>();
    for (const std::int64_t size : sizes) {
      Ints slots(kSlots);
      for (std::int32_t i = 0; i < kSlots; ++i)
        slots[static_cast<std::size_t>(i)] = i;
      std::shuffle(slots.begin(), slots.end(), random_);
      slots.resize(static_cast<std::size_t>(size));
      const Floats x = random_floats(size);
      for (std::size_t i = 0; i < slots.size(); ++i)
        expected[static_cast<std::size_t>(slots[i])] = x[i];
      const Tensor y = f(ints(slots), floats(x), cache);
      EXPECT_EQ(y.dim(0), size);
      ASSERT_EQ(cache.to_vector<float>(), expected) << size;
      context_.mark_step();
    }
  }
  Reduce reduce(std::string name, CompileOptions options, Tensor (*body)(const Tensor&)) {
    return compile(
        context_, std::move(name), [body](Tensor x) { return body(x); }, std::move(options));
  }
  static CompileOptions of_rows(std::string axis, Padding padding) {
    return {.inputs = {{.name = "x", .dynamic = {{0, axis}}, .padding = padding}},
            .buckets = {{axis, {4, 8}}}};
  }
  float largest_of(const Floats& x) const { return *std::max_element(x.begin(), x.end()); }

  const Device device_ = Device::host();
  std::mt19937 random_{std::random_device()()};
  Context context_{device_};
};

// ---- Slots ----

TEST_F(PaddingTest, ZerosThatWereNotChosenAreNoSlots) {
  const Decode f = decode(slots_into_cache({}, {4, 8}));
  expect_cache(f, {3, 3, 3, 5, 4, 4, 4, 8, 7, 3, 1, 5, 8});
  EXPECT_EQ(f.stats().skipped(SkipReason::kUnsafePadding), 8u);
  EXPECT_EQ(f.stats().replays, 1u);  // full buckets need no padding
}

TEST_F(PaddingTest, AnExplanationNamesInputsAxisAndChoices) {
  const Decode f = decode(slots_into_cache({}, {4}));
  const Tensor cache = floats(Floats(kSlots, 7));
  const std::string why = to_string(f.explain(ints({1, 2, 3}), floats({1, 2, 3}), cache));
  EXPECT_THAT(why, HasSubstr("axis 'rows' is 3, padded to 4 with zeros in input 0 'slots', and the "
                             "function writes input 2 'cache'"));
  EXPECT_THAT(why, HasSubstr("a value that is no index, such as -1"));
}

TEST_F(PaddingTest, AFunctionThatRequiresAGraphRefusesUnsafePadding) {
  CompileOptions options = slots_into_cache({}, {4});
  options.require_graph = true;
  const Decode f = decode(options);
  const Tensor cache = floats(Floats(kSlots, 7));
  try {
    (void)f(ints({1, 2, 3}), floats({1, 2, 3}), cache);
    ADD_FAILURE() << "not refused";
  } catch (const CaptureError& error) {
    EXPECT_THAT(error.what(), HasSubstr("with zeros in input 0 'slots'"));
  }
  EXPECT_EQ(cache.to_vector<float>(), Floats(kSlots, 7));
}

TEST_F(PaddingTest, PaddingThatWasChosenPads) {
  const Decode f = decode(slots_into_cache(Padding::of(-1), {4, 8}));
  expect_cache(f, {3, 3, 3, 5, 4, 4, 4, 8, 7, 3, 1, 5, 8});
  EXPECT_EQ(f.stats().skipped(), 0u);
  EXPECT_EQ(f.stats().recordings, 2u);
}

// An exact size, and each policy that pads.
TEST_F(PaddingTest, NoPolicyPadsUnsafely) {
  const auto options = [](AxisOptions axis) {
    CompileOptions all = slots_into_cache({}, {4});
    all.buckets.clear();
    axis.name = "rows";
    all.axes = {std::move(axis)};
    return all;
  };
  for (const AxisOptions& axis :
       {AxisOptions{.policy = AxisPolicy::kPowersOfTwo},
        AxisOptions{.policy = AxisPolicy::kMultiples, .multiple_of = 4},
        AxisOptions{.max_sizes = 1, .at_max_sizes = AtMaxSizes::kNextLarger}}) {
    expect_cache(decode(options(axis)), {8, 8, 8, 3, 5, 7, 8});
  }
  CompileOptions next_larger = slots_into_cache({}, {4, 8});
  next_larger.while_missing = WhileMissing::kNextLarger;
  const Decode f = decode(next_larger);
  const Tensor cache = floats(Floats(kSlots, 7));
  (void)precapture(f, {.held_outputs = 0}, [&](const CallSizes& sizes) {
    const auto rows = static_cast<std::size_t>(sizes["rows"]);
    return std::vector{ints(Ints(rows, -1)), floats(Floats(rows)), cache};
  });
  expect_cache(f, {8, 3, 5, 7, 4, 8}, cache);
  EXPECT_EQ(f.stats().replays, 3u);
}

// No row of padding reaches the cache: with and without a chosen padding, for the function and for
// one that it calls, verified or not.
TEST_F(PaddingTest, RandomProgramsWriteWhatEagerCallsWrite) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  random_.seed(seed);
  std::uint64_t padded = 0;
  for (int program = 0; program < 40 || padded < 100; ++program) {
    const auto draw = [&](int below) { return static_cast<int>(random_() % unsigned(below)); };
    const Padding chosen[] = {{}, Padding::of(-1), Padding::last()};
    CompileOptions options = slots_into_cache(chosen[draw(3)], {});
    if (options.inputs[0].padding.kind == Padding::Kind::kLast)
      options.inputs[1].padding = Padding::last();
    options.buckets.clear();
    const AxisOptions policies[] = {{.policy = AxisPolicy::kBuckets, .sizes = {2, 5, 11}},
                                    {.policy = AxisPolicy::kPowersOfTwo},
                                    {.policy = AxisPolicy::kMultiples, .multiple_of = 3},
                                    {.max_sizes = 2, .at_max_sizes = AtMaxSizes::kNextLarger}};
    options.axes = {policies[draw(4)]};
    options.axes[0].name = "rows";
    options.max_waste = draw(2) == 0 ? 1.6 : 100;
    options.verify_first = draw(2) == 0 ? 4 : 0;
    const Decode inner = decode(options);
    CompileOptions outer = options;
    outer.inputs[0].padding = Padding::of(-1);
    outer.inputs[1].padding = {};
    const bool is_nested = draw(2) == 0;
    const Decode f = !is_nested ? decode(options)
                                : compile(
                                      context_, "outer",
                                      [&](Tensor slots, Tensor values, Tensor cache) {
                                        return inner(slots, values, cache);
                                      },
                                      outer);
    std::vector<std::int64_t> sizes;
    for (int call = 0; call < 30; ++call)
      sizes.push_back(1 + draw(12));
    ASSERT_NO_FATAL_FAILURE(expect_cache(f, sizes)) << program;
    EXPECT_EQ(f.stats().failures, 0u);
    if (options.inputs[0].padding.kind != Padding::Kind::kUnset) padded += f.stats().replays;
  }
}

// An input that the function writes is not an index into another input, and neither are floats.
TEST_F(PaddingTest, InputsThatAreNotIndicesArePaddedAsUsual) {
  const auto counts =
      compile(context_, "counts",
              [](Tensor counts, Tensor x) {
                parallel_for(current_stream(), counts.elements(),
                             [data = counts.data<std::int32_t>()](std::int64_t i) { ++data[i]; });
                return affine(x, 2, 0);
              },
              {.inputs = {{.is_mutated = true, .dynamic = {{0, "n"}}}, {.dynamic = {{0, "n"}}}},
               .buckets = {{"n", {4}}},
               .outputs = {{.dynamic = {{0, "n"}}}}});
  const Tensor counted = ints({1, 2, 3});
  for (int call = 0; call < 4; ++call)
    (void)counts(counted, floats({1, 2, 3}));
  EXPECT_EQ(counted.to_vector<std::int32_t>(), (Ints{5, 6, 7}));
  EXPECT_EQ(counts.stats().skipped(), 0u);
}

TEST_F(PaddingTest, AWriteBesideThePaddingWarnsOnceUntilThePaddingIsChosen) {
  const auto compiled = [&](std::string name, Padding padding) {
    return compile(
        context_, std::move(name),
        [](Tensor x, Tensor cache) {
          parallel_for(current_stream(), x.elements(), Write{x.data<float>(), cache.data<float>()});
        },
        {.inputs = {{.name = "x", .dynamic = {{0, "n"}}, .padding = padding},
                    {.name = "cache", .is_static = true, .is_mutated = true}},
         .buckets = {{"n", {4}}}});
  };
  const Tensor cache = floats(Floats(kSlots, 7));
  for (const auto& [padding, expected] :
       {std::pair(Padding(), 1), std::pair(Padding::zeros(), 0)}) {
    const auto f = compiled(expected == 1 ? "unset" : "chosen", padding);
    const CapturedLog warnings;
    for (int call = 0; call < 4; ++call)
      f(floats({1, 2, 3}), cache);
    EXPECT_EQ(std::ssize(warnings.lines()), expected);
    if (expected == 0) continue;
    EXPECT_THAT(
        warnings.lines()[0],
        HasSubstr("padding_not_chosen function=unset what=\"input 0 'x' is padded with zeros "
                  "along 'n', and input 1 'cache', which is written, has no such axis"));
  }
}

// ---- Verification ----

class PaddingVerifiedTest : public PaddingTest {
 protected:
  PaddingVerifiedTest() : verified_(device_, {.extensions = {verify({.first = 1})}}) {}
  // Calls until a replay is verified, and returns the divergence.
  template <typename F>
  Divergence divergence_of(const F& call) {
    for (int i = 0; i < 4; ++i) {
      try {
        call();
      } catch (const VerifyError& error) {
        return error.divergence();
      }
    }
    return {};
  }
  Context verified_;
};

TEST_F(PaddingVerifiedTest, RowsOfPaddingThatWriteAreFound) {
  const auto f = compile(
      verified_, "f",
      [](Tensor x, Tensor cache) {
        parallel_for(current_stream(), x.elements(), Write{x.data<float>(), cache.data<float>()});
      },
      {.inputs = {{.dynamic = {{0, "n"}}},
                  {.name = "cache", .is_static = true, .is_mutated = true}},
       .buckets = {{"n", {4}}}});
  const Tensor cache = floats(Floats(kSlots, 7));
  const Divergence found = divergence_of([&] {
    cache.copy_from<float>(Floats(kSlots, 7));
    f(floats({1, 2, 3}), cache);
  });
  EXPECT_EQ(found.what, "input 1 'cache'");
  EXPECT_EQ(found.element, 3u);
  EXPECT_EQ(found.replayed, "0");
  EXPECT_EQ(found.eager, "7");
  ASSERT_FALSE(found.suspects.empty());
  EXPECT_THAT(found.suspects[0], HasSubstr("the replay was padded and the eager run was not"));
}

TEST_F(PaddingVerifiedTest, AResultThatShowsThePaddingIsFound) {
  const auto f = compile(
      verified_, "f", [](Tensor x) { return reduced<Largest>(x); }, of_rows("n", Padding::zeros()));
  const Divergence found = divergence_of([&] { return f(floats({-3, -1, -2})); });
  EXPECT_EQ(found.replayed, "0");
  EXPECT_EQ(found.eager, "-1");
}

TEST_F(PaddingVerifiedTest, PaddingThatNothingShowsIsVerified) {
  const auto largest = compile(
      verified_, "largest", [](Tensor x) { return reduced<Largest>(x); },
      of_rows("n", Padding::of(-std::numeric_limits<double>::infinity())));
  const auto unsliced = compile(
      verified_, "unsliced", [](Tensor x) { return affine(x, 2, 1); },
      of_rows("n", Padding::anything()));
  for (int call = 0; call < 4; ++call) {
    EXPECT_EQ(largest(floats({-3, -1, -2})).to_vector<float>(), Floats{-1});
    EXPECT_EQ(unsliced(floats({-3, -1, -2})).dim(0), 4);
  }
  EXPECT_EQ(largest.stats().verified, 1u);
  EXPECT_EQ(unsliced.stats().verified, 1u);
}

// ---- Functions that are called by others ----

TEST_F(PaddingTest, ANestedFunctionSeesItsOwnPaddingAtEachSize) {
  for (const char* const inner_axis : {"rows", "n"}) {
    const Reduce largest =
        reduce("largest", of_rows(inner_axis, Padding::of(-1e30)), &reduced<Largest>);
    const Reduce last = reduce("last", of_rows(inner_axis, Padding::last()), &reduced<Largest>);
    const Reduce sum = reduce("sum", of_rows(inner_axis, {}), &reduced<Sum>);
    CompileOptions options = of_rows("rows", Padding::of(1000));
    const auto all = compile(
        context_, "all",
        [&](Tensor x) {
          return std::array{largest(x), last(x), sum(affine(x, 2, 0)), affine(x, 1, 0)};
        },
        options);
    for (const std::int64_t size : {3, 3, 4, 2, 1, 3, 8, 5, 5, 7, 8, 6, 3, 0, 4}) {
      if (size == 0) continue;
      const Floats x = random_floats(size);
      const auto [most, repeated, total, seen] = all(floats(x));
      float expected = 0;
      for (const float value : x)
        expected += 2 * value;
      EXPECT_EQ(most.to_vector<float>()[0], largest_of(x)) << size;
      EXPECT_EQ(repeated.to_vector<float>()[0], largest_of(x)) << size;
      EXPECT_EQ(total.to_vector<float>()[0], expected) << size;
      // The outer function sees its own padding.
      EXPECT_EQ(seen.to_vector<float>().back(), seen.dim(0) > size ? 1000 : x.back()) << size;
    }
    EXPECT_EQ(all.stats().recordings, 2u);
    EXPECT_EQ(all.stats().skipped(), 0u);
  }
}

TEST_F(PaddingTest, PaddingOfANestedFunctionReachesNoOtherFunction) {
  CompileOptions two = of_rows("rows", {});
  two.inputs.push_back({.dynamic = {{0, "rows"}}});
  two.outputs = {{.dynamic = {{0, "rows"}}}};
  const auto attend = compile(
      context_, "attend",
      [](Tensor lengths, Tensor x) {
        const Tensor y = empty(x.shape(), DType::kFloat32);
        parallel_for(current_stream(), x.elements(),
                     Attend{lengths.data<std::int32_t>(), x.data<float>(), y.data<float>()});
        return y;
      },
      two);
  const Reduce sum = reduce("sum", of_rows("rows", {}), &reduced<Sum>);
  CompileOptions outer = two;
  outer.outputs.clear();
  const auto both = compile(
      context_, "both", [&](Tensor lengths, Tensor x) { return sum(attend(lengths, x)); }, outer);
  for (const std::size_t size : {5, 5, 5, 8, 6, 3, 3, 3, 1})
    EXPECT_EQ(both(ints(Ints(size, 1)), floats(Floats(size, 1))).to_vector<float>()[0], 2.f * size);
}

TEST_F(PaddingTest, ANestedFunctionWritesItsInputsBack) {
  CompileOptions in_place = of_rows("rows", Padding::of(50));
  in_place.inputs[0].is_mutated = true;
  const auto add_one = compile(
      context_, "add_one", [](Tensor x) { update(x, 1, 1); }, in_place);
  CompileOptions options = of_rows("rows", {});
  options.outputs = {{.dynamic = {{0, "rows"}}}};
  const auto outer = compile(
      context_, "outer",
      [&](Tensor x) {
        const Tensor y = affine(x, 2, 0);
        add_one(y);
        return y;
      },
      options);
  for (int call = 0; call < 4; ++call)
    EXPECT_EQ(outer(floats({1, 2, 3})).to_vector<float>(), (Floats{3, 5, 7}));
}

// The outer warm-up, which has rows of padding, precedes all knowledge about the inner function.
TEST_F(PaddingTest, AFunctionThatCallsOneWhosePaddingWouldBeASlotRunsEagerly) {
  CompileOptions options = slots_into_cache({}, {4, 8});
  const Decode inner = decode(options);
  options.inputs[0].padding = Padding::zeros();  // suits the outer function alone
  const auto outer = compile(
      context_, "outer",
      [&](Tensor slots, Tensor x, Tensor cache) {
        const Tensor more = affine(x, 1, 0);
        const Tensor twice = inner(slots, more, cache);
        return affine(twice, 0.5, 0);
      },
      options);
  const CapturedLog warnings;
  expect_cache(outer, {3, 3, 3, 5, 4, 4, 4, 8, 7, 3, 1, 5, 8});
  EXPECT_EQ(outer.stats().failures, 0u);
  EXPECT_EQ(outer.stats().warm_ups, 3u);  // the first call, and the first full bucket of each size
  EXPECT_EQ(outer.stats().skipped(SkipReason::kUnsafePadding), 7u);
  EXPECT_EQ(outer.stats().recordings, 2u);  // recorded with full buckets, which need no padding
  EXPECT_EQ(outer.stats().replays, 1u);
  const auto told = std::ranges::count_if(warnings.lines(), [](const std::string& line) {
    return line.find("with zeros in input 0 'slots' of 'decode', which 'outer' calls") !=
           std::string::npos;
  });
  EXPECT_EQ(told, 1);
}

// The outer function adds its own tensors to the result, rows of padding included, and sees no
// other size: with and without a declared axis of the result, along each axis, and into a buffer.
TEST_F(PaddingTest, AnOuterWarmUpSeesResultsOfItsSizeFromAFunctionThatIsNotPadded) {
  for (const bool is_declared : {true, false}) {
    const auto n = static_cast<std::int64_t>(2 + random_() % 2);
    CompileOptions options = slots_into_cache({}, {4});
    options.inputs[0].dynamic = {{1, "rows"}};
    options.inputs[1].dynamic = {{1, "rows"}};
    options.outputs[0].dynamic = {{1, "rows"}};
    CompileOptions inside = options;
    if (!is_declared) inside.outputs.clear();
    std::vector<std::int64_t> seen;
    const Decode inner = compile(
        context_, "inner",
        [&](Tensor slots, Tensor values, Tensor cache) {
          seen.push_back(slots.dim(1));
          EXPECT_TRUE(slots.is_contiguous());
          parallel_for(
              current_stream(), slots.elements(),
              Scatter{slots.data<std::int32_t>(), values.data<float>(), cache.data<float>()});
          return affine(values, 2, 0);
        },
        inside);
    options.inputs[0].padding = Padding::of(-1);
    const auto outer = compile(
        context_, "outer",
        [&](Tensor slots, Tensor values, Tensor cache) {
          const Tensor buffer = empty(values.shape(), DType::kFloat32);
          inner.into(buffer)(slots, values, cache);
          const Tensor y = inner(slots, values, cache);
          EXPECT_TRUE(std::ranges::equal(y.shape().dims(), values.shape().dims()));
          return affine(y, 1, 0);
        },
        options);
    const Tensor cache = floats(Floats(kSlots, 7));
    Floats expected(kSlots, 7);
    for (int call = 0; call < 3; ++call) {
      Ints slots(static_cast<std::size_t>(2 * n));
      for (std::size_t i = 0; i < slots.size(); ++i)
        slots[i] = static_cast<std::int32_t>(i + 1);
      std::shuffle(slots.begin(), slots.end(), random_);
      const Floats x = random_floats(2 * n);
      Floats twice;
      for (std::size_t i = 0; i < slots.size(); ++i) {
        expected[static_cast<std::size_t>(slots[i])] = x[i];
        twice.push_back(2 * x[i]);
      }
      const Tensor y = empty({2, n}, DType::kFloat32, device_);
      (void)outer.into(y)(from_host<std::int32_t>({2, n}, slots, device_),
                          from_host<float>({2, n}, x, device_), cache);
      EXPECT_EQ(y.to_vector<float>(), twice);
      EXPECT_EQ(cache.to_vector<float>(), expected);
    }
    EXPECT_EQ(seen, std::vector<std::int64_t>(6, n));
    EXPECT_EQ(outer.stats().skipped(SkipReason::kUnsafePadding), 2u);
  }
}

// A result that shares memory with an input is the outer function's tensor, not a copy.
TEST_F(PaddingTest, AResultThatIsAnInputOfAFunctionThatIsNotPaddedIsTheOuterOnes) {
  CompileOptions options = slots_into_cache({}, {4});
  options.inputs[1].is_mutated = true;
  const Decode inner = compile(
      context_, "inner",
      [](Tensor slots, Tensor values, Tensor cache) {
        parallel_for(
            current_stream(), slots.elements(),
            Scatter{slots.data<std::int32_t>(), values.data<float>(), cache.data<float>()});
        update(values, 2, 0);
        return values;
      },
      options);
  options.inputs[0].padding = Padding::of(-1);
  const auto outer = compile(
      context_, "outer",
      [&](Tensor slots, Tensor values, Tensor cache) {
        update(inner(slots, values, cache), 1, 1);
        return affine(values, 1, 0);
      },
      options);
  for (int call = 0; call < 3; ++call) {
    const Floats x = random_floats(3);
    const Floats expected = {2 * x[0] + 1, 2 * x[1] + 1, 2 * x[2] + 1};
    const Tensor values = floats(x);
    const Tensor y = outer(ints({1, 2, 3}), values, floats(Floats(kSlots, 7)));
    EXPECT_EQ(y.to_vector<float>(), expected);
    EXPECT_EQ(values.to_vector<float>(), expected);
  }
}

// The step calls the inner function for the first time in a capture: with rows of padding, that
// recording is dropped.
TEST_F(PaddingTest, AFunctionThatIsFirstCalledInACaptureIsNotPaddedThereEither) {
  CompileOptions options = slots_into_cache({}, {4});
  const Decode inner = decode(options);
  options.inputs[0].padding = Padding::of(-1);
  int runs = 0;
  const auto outer = compile(
      context_, "outer",
      [&](Tensor slots, Tensor x, Tensor cache) {
        if (++runs == 1) {
          parallel_for(current_stream(), slots.elements(),
                       Scatter{slots.data<std::int32_t>(), x.data<float>(), cache.data<float>()});
          return affine(x, 2, 0);
        }
        return inner(slots, x, cache);
      },
      options);
  expect_cache(outer, {3, 3, 2, 1, 3});
  EXPECT_EQ(outer.stats().failures, 0u);
  EXPECT_EQ(outer.stats().recordings, 0u);
  EXPECT_EQ(outer.stats().skipped(SkipReason::kCaptureFailed), 1u);
  EXPECT_EQ(outer.stats().skipped(SkipReason::kUnsafePadding), 3u);
}

TEST_F(PaddingVerifiedTest, NestedFunctionsAreVerifiedWithTheActualSizes) {
  const auto largest = compile(
      verified_, "largest", [](Tensor x) { return reduced<Largest>(x); },
      of_rows("rows", Padding::of(-1e30)));
  const auto outer = compile(
      verified_, "outer", [&](Tensor x) { return largest(x); }, of_rows("rows", Padding::zeros()));
  for (int call = 0; call < 4; ++call)
    EXPECT_EQ(outer(floats({-3, -1, -2})).to_vector<float>(), Floats{-1});
  EXPECT_EQ(outer.stats().verified, 1u);
}

}  // namespace
}  // namespace cgtree::testing
