// Two runs from equal memory: the first node whose writes differ is named, and no other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "extensions/inspect/inspect.h"
#include "extensions/scopes/scope.h"
#include "extensions/verify/verify.h"
#include "interop/device/device_api.h"
#include "interop/random/random.h"
#include "tests/cgtree/stream_order_fixture.h"
#include "tests/support/failing_device.h"
#include "tests/support/random_steps.h"
#include "tests/support/step_work.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kCount = 200;

class CompareRunsTest : public TreeTest {
 protected:
  template <typename F, typename... Inputs>
  void expect_nothing(const F& f, const Inputs&... inputs) {
    const CaptureComparison comparison = compare_runs(f, inputs...);
    EXPECT_EQ(comparison.why_not, "");
    EXPECT_EQ(comparison.difference, "");
    EXPECT_GT(comparison.nodes, 0u);
  }
};
CGTREE_ON_ALL_DEVICES(CompareRunsTest);

TEST_P(CompareRunsTest, NothingIsNamedInRandomStepsAndMutatedInputsStay) {
  for (int round = 0; round < 50; ++round) {
    const unsigned plan = random_();
    const bool is_static = random_() % 2 == 0;
    const auto f = compile(context(), "f",
                           [plan](Tensor x, Tensor y, Tensor state) {
                             std::mt19937 choices(plan);
                             std::vector<Tensor> made{x, y, state};
                             const auto any = [&] { return made[choices() % made.size()]; };
                             const std::size_t count = 1 + choices() % 12;
                             for (std::size_t i = 0; i < count; ++i) {
                               switch (choices() % 5) {
                                 case 0:
                                   made.push_back(affine(any(), 2, 1));
                                   break;
                                 case 1:
                                   made.push_back(add(any(), any()));
                                   break;
                                 case 2:
                                   update(state, 1, 1);
                                   break;
                                 case 3:  // its memory is free after this
                                   (void)affine(affine(any(), 3, 1), 2, 1);
                                   break;
                                 default: {  // the other elements are not written
                                   const Tensor part = empty(Shape({kCount}), DType::kFloat32);
                                   axpy(0, any(), part, 8);
                                 }
                               }
                             }
                             return add(made.back(), x);
                           },
                           {.inputs = {{}, {}, {.is_static = is_static, .is_mutated = true}}});
    const Tensor x = random_tensor({kCount}), y = random_tensor({kCount});
    const Tensor state = random_tensor({kCount});
    prepare(f, x, y, state);
    const std::vector<float> before = values(state);
    expect_nothing(f, x, y, state);
    EXPECT_EQ(values(state), before);
    const std::vector<float> result = values(f(x, y, state));
    state.copy_from<float>(before);
    EXPECT_EQ(values(f(x, y, state)), result);
    if (HasFailure()) return;
  }
}

// Each run of the step function writes the table, and so does its capture.
TEST_P(CompareRunsTest, ATableOfOtherContentsIsNamedWhereItIsRead) {
  DeviceAPI& api = device_api(device());
  void* pinned = nullptr;
  check(api.alloc_pinned(kCount * sizeof(float), &pinned), "allocate");
  float number = 1;
  const auto f = compile(context(), "f", [&](Tensor x) {
    for (std::int64_t i = 0; i < kCount; ++i)
      static_cast<float*>(pinned)[i] = i < 150 ? 1 : number;
    Tensor y = affine(affine(x, 2, 0), 1, 1);
    const Scope scope("lookup");
    axpy(1, pinned, y, kCount);
    return affine(y, 2, 0);
  });
  const Tensor x = random_tensor({kCount});
  prepare(f, x);
  expect_nothing(f, x);
  number = 2;
  EXPECT_EQ(compare_captures(f, x).difference, "");
  number = 3;

  const CaptureComparison found = compare_runs(f, x);

  EXPECT_THAT(found.difference, AllOf(HasSubstr("node 2 of 4: the memory of parameter 2"),
                                      HasSubstr("between bytes 512 and 1024")));
  ASSERT_TRUE(found.recorded);
  EXPECT_EQ(found.recorded->scope, "lookup");
  EXPECT_THAT(to_string(found), HasSubstr("axpy"));
  expect_nothing(f, x);
  check(api.free_pinned(pinned), "free");
}

TEST_P(CompareRunsTest, AScalarThatHasChangedIsNamedWhereItMatters) {
  float factor = 2, unused = 1;
  const Tensor zeros = tensor({kCount}, std::vector<float>(kCount, 0));
  const auto f = compile(context(), "f", [&](Tensor x) {
    Tensor y = affine(x, 1, 0);
    axpy(unused, zeros, y, kCount);
    axpy(factor, x, y, kCount);
    return y;
  });
  const Tensor x = random_tensor({kCount});
  prepare(f, x);
  unused = 2;
  EXPECT_THAT(compare_captures(f, x).difference, HasSubstr("node 1 of 3"));
  expect_nothing(f, x);
  factor = 3;
  EXPECT_THAT(compare_runs(f, x).difference,
              AllOf(HasSubstr("node 2 of 3"), HasSubstr("output 0")));
}

TEST_P(CompareRunsTest, AnInputThatIsWrittenIsCompared) {
  float shift = 1;
  for (const bool is_static : {false, true}) {
    const auto f = compile(context(), "f",
                           [&](Tensor state) {
                             update(state, 1, shift);
                             return affine(state, 1, 0);
                           },
                           {.inputs = {{.is_static = is_static, .is_mutated = true}}});
    const Tensor state = random_tensor({kCount});
    shift = 1;
    prepare(f, state);
    shift = 2;
    const std::vector<float> before = values(state);
    EXPECT_THAT(compare_runs(f, state).difference,
                AllOf(HasSubstr("node 0 of 2"), HasSubstr("input 0")));
    EXPECT_EQ(values(state), before);
  }
}

TEST_P(CompareRunsTest, MemoryThatLiesElsewhereInTheCaptureIsCompared) {
  const auto other = compile(context(), "other", [](Tensor x) { return affine(x, 1, 0); });
  float shift = 1;
  std::vector<std::uintptr_t> seen;
  const auto f = compile(context(), "f", [&](Tensor x, Tensor value) {
    Tensor y = affine(add(x, value), 1, shift);
    seen.push_back(y.address());
    return y;
  });
  const Tensor x = random_tensor({kCount});
  const std::vector<float> numbers = random_floats(kCount);
  const Tensor value =
      by_value(numbers.data(), kCount * sizeof(float), Shape({kCount}), DType::kFloat32);
  std::vector<Tensor> held;
  for (int i = 0; i < 3; ++i)
    held.push_back(other(x));
  prepare(f, x, value);
  held.clear();
  expect_nothing(f, x, value);
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_NE(seen[2], seen[1]);
  shift = 2;
  EXPECT_THAT(compare_runs(f, x, value).difference,
              AllOf(HasSubstr("node 1 of 2"), HasSubstr("output 0")));
}

TEST_P(CompareRunsTest, CallsThatCannotBeComparedSayWhy) {
  const Generator generator(seed_);
  const auto draws = compile(context(), "f", [&](Tensor x) { return add_noise(x, generator); });
  const auto varies = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); },
                              {.inputs = {{.dynamic = {{0, "n"}}}}, .buckets = {{"n", {kCount}}}});
  bool is_longer = false;
  const auto f = compile(context(), "f", [&](Tensor x) {
    return is_longer ? affine(affine(x, 2, 0), 1, 1) : affine(x, 2, 0);
  });
  const Tensor x = random_tensor({kCount});
  EXPECT_THAT(compare_runs(f, x).why_not, HasSubstr("no recording would be replayed"));
  prepare(draws, x);
  prepare(varies, x);
  prepare(f, x);
  EXPECT_THAT(compare_runs(draws, x).why_not, HasSubstr("random numbers"));
  EXPECT_THAT(compare_runs(varies, x).why_not, HasSubstr("dynamic axes"));
  is_longer = true;
  EXPECT_THAT(compare_runs(f, x).why_not, HasSubstr("1 nodes of the step, and a new capture 2"));
  is_longer = false;
  expect_nothing(f, x);
}

// Such memory would be named in each comparison, with all nodes that depend on it.
TEST_P(CompareRunsTest, AStepThatWritesMemoryThatIsNoInputIsNotCompared) {
  const Tensor state = random_tensor({kCount});
  const auto f = compile(context(), "f", [&](Tensor x) {
    update(state, 1, 1);
    return add(affine(x, 2, 0), state);
  });
  const Tensor x = random_tensor({kCount});
  prepare(f, x);
  const CaptureComparison comparison = compare_runs(f, x);
  EXPECT_EQ(comparison.difference, "");
  EXPECT_THAT(comparison.why_not, HasSubstr("two runs of the recording differ behind node 2"));
}

class CompareRunsOrderTest : public StreamOrderTest {};

// The saved contents are those after the other context's writes.
TEST_F(CompareRunsOrderTest, AMutatedInputIsSavedBehindAContextThatWritesIt) {
  expect_right_in_any_order([](Device device) {
    Context a(device), b(device);
    const auto prefill = compile(a, "prefill",
                                 [](Tensor x, Tensor cache) {
                                   const Tensor y = twice(x);
                                   update(cache, 0, -1);
                                   enqueue_copy(current_stream(), cache, y);
                                 },
                                 {.inputs = {{}, {.is_static = true, .is_mutated = true}}});
    const auto decode = compile(b, "decode",
                                [](Tensor cache) {
                                  update(cache, 1, 1);
                                  return affine(cache, 1, 1);
                                },
                                {.inputs = {{.is_static = true, .is_mutated = true}}});
    const Tensor x = filled(device, 2), cache = filled(device, 0);
    for (int call = 0; call < 3; ++call) {
      prefill(x, cache);
      (void)decode(cache);
    }
    prefill(x, cache);
    const CaptureComparison comparison = compare_runs(decode, cache);
    prefill(x, cache);
    (void)decode(cache);
    wait_for_all(device);
    return comparison.why_not.empty() && comparison.difference.empty() && holds(cache, 5);
  });
}

TEST(CompareRunsFailureTest, MutatedInputsStayWhicheverCallFails) {
  FailingDevice& failing = FailingDevice::instance();
  Context context(failing.device());
  const auto f = compile(context, "f",
                         [](Tensor x, Tensor state) {
                           update(state, 1, 1);
                           return add(x, state);
                         },
                         {.inputs = {{}, {.is_static = true, .is_mutated = true}}});
  const std::vector<float> numbers(kCount, 1);
  const Tensor x = from_host<float>({kCount}, numbers, failing.device());
  const Tensor state = from_host<float>({kCount}, numbers, failing.device());
  for (int call = 0; call < 3; ++call)
    (void)f(x, state);
  const std::vector<float> before = state.to_vector<float>();
  for (long at = 0;; ++at) {
    std::string why_not;
    failing.arm({.at = at, .code = Code::kInvalidValue, .function = "", .kind = {}});
    try {
      why_not = compare_runs(f, x, state).why_not;
    } catch (const Error& error) {
      why_not = error.what();
    }
    const bool has_failed = !failing.failed_function().empty();
    failing.disarm();
    EXPECT_EQ(state.to_vector<float>(), before) << at << ": " << why_not;
    if (!has_failed) break;
  }
}

TEST_P(CompareRunsTest, AVerificationThatFailsOffersIt) {
  make_context({.extensions = {verify({.every = 1})}});
  float factor = 2;
  const auto f = compile(context(), "f", [&](Tensor x) { return affine(x, factor, 0); });
  const Tensor x = random_tensor({kCount});
  prepare(f, x);
  factor = 3;
  EXPECT_THAT([&] { (void)f(x); },
              ::testing::ThrowsMessage<VerifyError>(HasSubstr("docs/inspect.md")));
  EXPECT_THAT(compare_runs(f, x).difference, HasSubstr("node 0 of 1"));
}

}  // namespace
}  // namespace cgtree::testing
