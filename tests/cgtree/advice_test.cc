// explain() for people: the first line gives both sides of a difference, the second gives advice.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "cgtree/values/graph_scope.h"
#include "interop/device/graph.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Kind = Mismatch::Kind;
using F = CompiledFunction<Tensor(Tensor)>;
using Pair = CompiledFunction<Tensor(Tensor, Tensor)>;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

// The first line contains each of `both`; the second begins with `advised`.
void expect_says(const Explanation& why, const std::vector<std::string>& both,
                 const std::string& advised) {
  const std::vector<std::string> lines = lines_of(to_string(why));
  ASSERT_GE(lines.size(), 2u) << to_string(why);
  EXPECT_EQ(lines[0].rfind(name(why.outcome), 0), 0u) << lines[0];
  for (const std::string& side : both)
    EXPECT_THAT(lines[0], HasSubstr(side));
  EXPECT_THAT(lines[1], HasSubstr("  to replay: " + advised));
  EXPECT_EQ(why.axes.size() + why.notes.size(), lines.size() - 2) << to_string(why);
}

class AdviceTest : public TreeTest {
 protected:
  static std::string hex(const Tensor& tensor) { return fmt::format("{:#x}", tensor.address()); }
  static Tensor doubled(const Tensor& x) { return affine(x, 2, 0); }

  F function(CompileOptions options = {}) {
    return compile(
        context(), "f", [](Tensor x) { return doubled(x); }, std::move(options));
  }
  // A function with one axis "n".
  F with_axis(AxisOptions axis, CompileOptions options = {}) {
    axis.name = "n";
    options.inputs = {{.dynamic = {{0, "n"}}}};
    options.outputs = {{.dynamic = {{0, "n"}}}};
    options.axes = {std::move(axis)};
    return function(std::move(options));
  }
  void call(const F& f, std::initializer_list<std::int64_t> sizes) {
    for (const std::int64_t size : sizes)
      (void)f(random_tensor({size}));
  }
  void expect_skip(const F& f, std::int64_t size, SkipReason reason,
                   const std::vector<std::string>& both) {
    const Explanation why = f.explain(random_tensor({size}));
    EXPECT_EQ(why.skip_reason, reason);
    expect_says(why, both, std::string(advice(reason)));
  }
};
CGTREE_ON_ALL_DEVICES(AdviceTest);

TEST(AdviceTextTest, EveryReasonHasAMeaningAndAnAdviceOfItsOwn) {
  std::set<std::string_view> meanings, advices;
  for (int i = 0; i < kSkipReasonCount; ++i) {
    const auto reason = static_cast<SkipReason>(i);
    const std::string text = to_string(
        Explanation{.outcome = Outcome::kRunEagerly, .skip_reason = reason, .detail = "3, not 4"});
    EXPECT_EQ(text, fmt::format("run_eagerly ({}): {}; 3, not 4\n  to replay: {}", name(reason),
                                explain(reason), advice(reason)));
    EXPECT_FALSE(explain(reason).empty() || advice(reason).empty()) << name(reason);
    meanings.insert(explain(reason));
    advices.insert(advice(reason));
  }
  EXPECT_EQ(meanings.size(), static_cast<std::size_t>(kSkipReasonCount));
  EXPECT_EQ(advices.size(), static_cast<std::size_t>(kSkipReasonCount));
}

TEST(AdviceTextTest, EveryMismatchHasAnAdviceThatNamesItsInput) {
  std::set<std::string> advices;
  for (int i = 1; i <= static_cast<int>(Kind::kFootprint); ++i) {
    const Mismatch mismatch{static_cast<Kind>(i), 3, "weights", "0xaa", "0xbb"};
    const std::string text =
        to_string(Explanation{.outcome = Outcome::kRecord, .nearest = 1, .mismatches = {mismatch}});
    EXPECT_EQ(lines_of(text).size(), 2u) << text;
    EXPECT_THAT(lines_of(text)[0], HasSubstr("0xaa"));
    EXPECT_THAT(lines_of(text)[0], HasSubstr("0xbb"));
    EXPECT_FALSE(advice(mismatch).empty()) << name(mismatch.kind);
    if (mismatch.is_of_input()) {
      EXPECT_THAT(lines_of(text)[1], HasSubstr("'weights'"));
    }
    advices.insert(advice(mismatch));
  }
  EXPECT_EQ(advices.size(), static_cast<std::size_t>(Kind::kFootprint));
}

TEST(AdviceTextTest, ManyMismatchesAreStillOneLine) {
  Explanation why{.outcome = Outcome::kRecord, .nearest = 1};
  for (std::uint32_t i = 0; i < 7; ++i)
    why.mismatches.push_back({Kind::kStaticAddress, i, "", "0xaa", "0xbb"});
  EXPECT_EQ(lines_of(to_string(why)).size(), 2u);
  EXPECT_THAT(difference(why), HasSubstr("static input 2: 0xaa recorded, 0xbb given; and 4 more"));
}

TEST_P(AdviceTest, AReplayNeedsNoAdvice) {
  const F f = function();
  call(f, {2, 2});
  const Explanation why = f.explain(random_tensor({2}));
  EXPECT_EQ(to_string(why), "replay node 1");
  EXPECT_EQ(difference(why), "");
  EXPECT_EQ(advice(why), "");
}

TEST_P(AdviceTest, TheFirstTwoCallsNeedNothing) {
  const F f = function();
  expect_says(f.explain(random_tensor({2})), {"for the first time"}, "nothing: ");
  call(f, {2});
  expect_says(f.explain(random_tensor({2})), {"has no recording"}, "nothing: ");
}

TEST_P(AdviceTest, AVaryingPropertyIsNamedWithBothSidesBeforeTheWarmUp) {
  const F f = function();
  call(f, {2, 2});
  expect_says(f.explain(random_tensor({5})), {"warm_up", "float32 {2}", "float32 {5}"},
              "pass input 0 as it was recorded, or declare the axis");
}

TEST_P(AdviceTest, ASizeThatHasNoRecordingYetNeedsNothing) {
  const F f = with_axis({.policy = AxisPolicy::kBuckets, .sizes = {2, 8}});
  call(f, {2, 2});
  expect_says(f.explain(random_tensor({7})), {"float32 {2}", "float32 {8}"},
              "nothing: each size that calls are padded to has a recording of its own");
}

TEST_P(AdviceTest, AStaticInputThatMovedIsSaidWithBothAddresses) {
  const Pair f = compile(context(), "f", [](Tensor w, Tensor x) { return add(w, x); },
                         {.inputs = {{.name = "weights", .is_static = true}}});
  const Tensor w = random_tensor({2}), moved = random_tensor({2}), x = random_tensor({2});
  for (int i = 0; i < 2; ++i)
    (void)f(w, x);
  expect_says(f.explain(moved, x), {"record: ", hex(w), hex(moved)},
              "keep 'weights' at one address, or do not declare it static");
}

TEST_P(AdviceTest, AnOutputThatIsHeldIsSaidWithWhatWouldOverwriteIt) {
  const F f = function();
  call(f, {2});
  const Tensor held = f(random_tensor({2}));
  expect_says(f.explain(random_tensor({2})), {"output 0 of 'f' at", hex(held)},
              "let go of outputs");
}

TEST_P(AdviceTest, SwitchesThatAreOffAreNamed) {
  expect_skip(function({.enabled = false}), 2, SkipReason::kDisabled, {"enabled = false"});
  const F f = function();
  const NoGraph none;
  expect_skip(f, 2, SkipReason::kNoGraphScope, {"NoGraph"});
}

TEST_P(AdviceTest, ACallInsideAnotherIsReplayedWithIt) {
  const F inner = function();
  const F outer = compile(context(), "outer", [&](Tensor x) {
    const Explanation why = inner.explain(x);
    EXPECT_EQ(why.skip_reason, SkipReason::kNestedCall);
    expect_says(why, {"inside another step function"}, "nothing: ");
    return inner(x);
  });
  call(outer, {2});
}

TEST_P(AdviceTest, InputsThatForbidAGraphAreNamed) {
  const Pair two = compile(context(), "two", [](Tensor x, Tensor y) { return add(x, y); },
                           {.inputs = {{.name = "x", .is_mutated = true}, {.name = "y"}}});
  const Tensor x = random_tensor({4});
  const Explanation overlap = two.explain(x, x);
  EXPECT_EQ(overlap.skip_reason, SkipReason::kOverlappingInputs);
  expect_says(overlap, {"'x'", "'y'", hex(x)}, "declare both static");

  const Tensor elsewhere = from_host<float>({4}, std::vector<float>(4), Device::host(1));
  const Explanation other = two.explain(random_tensor({4}), elsewhere);
  EXPECT_EQ(other.skip_reason, SkipReason::kOtherDevice);
  expect_says(other, {"input 1 'y' is on host:1", "the context on " + to_string(device())},
              "copy the input");
}

TEST_P(AdviceTest, TheCauseOfABrokenCaptureIsNamed) {
  const F f = compile(context(), "f", [](Tensor x) {
    current_stream().synchronize();
    return doubled(x);
  });
  call(f, {2, 2});
  expect_skip(f, 2, SkipReason::kCaptureFailed, {"capture of 'f' failed"});
}

TEST_P(AdviceTest, LimitsAreSaidWithWhatThereIs) {
  const F f = function({.max_recordings = 1});
  call(f, {2, 2, 3});
  const Explanation why = f.explain(random_tensor({3}));
  EXPECT_EQ(why.skip_reason, SkipReason::kFunctionLimit);
  expect_says(why, {"1 recordings, max_recordings is 1", "float32 {2}", "float32 {3}"},
              "raise CompileOptions::max_recordings, or let AtLimit::kEvict drop old ones; to need "
              "no new recording, pass input 0 as it was recorded");
}

TEST_P(AdviceTest, LimitsOfTheContextAreSaidWithWhatThereIs) {
  make_context({.max_recordings = 1});
  {
    const F f = function();
    call(f, {2, 2, 3});
    expect_skip(f, 3, SkipReason::kContextLimit, {"1 recordings, max_recordings is 1"});
  }
  make_context({.max_graph_bytes = 1});
  {
    const F f = function();
    call(f, {2, 2});
    expect_skip(f, 2, SkipReason::kGraphBytesLimit, {"0 bytes", "max_graph_bytes is 1"});
  }
  make_context({.max_recording_time = std::chrono::microseconds(0)});
  expect_skip(function(), 2, SkipReason::kTimeLimit, {"0 us spent, max_recording_time is 0 us"});
}

TEST_P(AdviceTest, TheMissingRecordingOfAFrozenFunctionIsNamed) {
  const F f = function();
  call(f, {2, 2});
  f.freeze();
  expect_skip(f, 3, SkipReason::kFrozen, {"float32 {2}", "float32 {3}"});
}

TEST_P(AdviceTest, StaticInputsThatMustNotMoveAreSaidWithBothAddresses) {
  const F f = function(
      {.inputs = {{.name = "w", .is_static = true}}, .on_static_change = OnStaticChange::kThrow});
  const Tensor w = random_tensor({2}), moved = random_tensor({2});
  for (int i = 0; i < 2; ++i)
    (void)f(w);
  const Explanation why = f.explain(moved);
  EXPECT_EQ(why.outcome, Outcome::kThrow);
  expect_says(why, {"throw (static_changed)", hex(w), hex(moved)},
              "choose OnStaticChange::kRecord or kDemote; to need no new recording, keep 'w'");
}

TEST_P(AdviceTest, SizesAreSaidWithWhatIsAllowed) {
  const F varies = with_axis({.policy = AxisPolicy::kSkip});
  call(varies, {2});
  expect_skip(varies, 3, SkipReason::kDynamicAxis, {"axis 'n' is 3", "first call's was 2"});
  expect_skip(with_axis({.policy = AxisPolicy::kAllowList, .sizes = {2, 4}}), 3,
              SkipReason::kSizeNotListed, {"axis 'n' is 3", "none of the 2 sizes"});
  const F many = with_axis({.max_sizes = 1});
  call(many, {2, 2});
  expect_skip(many, 3, SkipReason::kSizeLimit, {"axis 'n' is 3", "1 other sizes", "max_sizes"});
  const AxisOptions buckets{.policy = AxisPolicy::kBuckets, .sizes = {2, 8}};
  expect_skip(with_axis(buckets), 9, SkipReason::kAboveLargestBucket,
              {"axis 'n' is 9", "the largest of its 2 buckets is 8"});
  expect_skip(with_axis(buckets, {.while_missing = WhileMissing::kRunEagerly}), 3,
              SkipReason::kNotRecorded, {"axis 'n' is 3"});
  expect_skip(with_axis(buckets, {.max_waste = 2}), 3, SkipReason::kTooMuchPadding,
              {"axis 'n' is 3, padded to 8", "2.67 times the work, max_waste is 2"});
}

TEST_P(AdviceTest, AFailureIsToldUntilACallSucceeds) {
  bool throws = true;
  const F f = compile(context(), "f", [&](Tensor x) {
    if (throws) throw std::runtime_error("not today");
    return doubled(x);
  });
  const Tensor x = random_tensor({2});
  EXPECT_THROW((void)f(x), std::runtime_error);
  expect_says(f.explain(x), {"the last call threw \"not today\""}, "mend what the last call threw");
  EXPECT_EQ(f.stats().last_failure, "not today");
  throws = false;
  (void)f(x);
  EXPECT_THAT(to_string(f.explain(x)), Not(HasSubstr("not today")));
}

TEST_P(AdviceTest, AnotherShapeIsSaidBeforeAnythingIsRecorded) {
  const F f = function();
  call(f, {2});
  expect_says(f.explain(random_tensor({3})), {"float32 {2} in the last, float32 {3} given"},
              "declare axis 0 of input 0 in InputOptions::dynamic and give it buckets");
}

TEST_P(AdviceTest, TheErrorOfAFunctionThatRequiresAGraphSaysWhatToChange) {
  const F f = function({.enabled = false, .require_graph = true});
  try {
    call(f, {2});
    FAIL() << "nothing was thrown";
  } catch (const CaptureError& error) {
    EXPECT_THAT(std::string(error.message()),
                HasSubstr(std::string(advice(SkipReason::kDisabled))));
  }
}

}  // namespace
}  // namespace cgtree::testing
