// Calls that run eagerly on purpose: right values, a named reason, one warning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "interop/device/code.h"
#include "interop/device/graph.h"
#include "tests/support/captured_log.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class SkipTest : public TreeTest {
 protected:
  template <typename Function>
  static std::uint64_t skips(const Function& function, SkipReason reason) {
    return function.stats().skips[static_cast<int>(reason)];
  }

  CapturedLog warnings_;
};
CGTREE_ON_ALL_DEVICES(SkipTest);

// Row 5 multiple_devices_msg: an input elsewhere.
// Acceptance: trees 5.
TEST_P(SkipTest, AnInputOnAnotherDeviceRunsEagerly) {
  CompiledFunction f = compile(context(), "f", [](Tensor x, Tensor) { return affine(x, 2, 0); });
  const Tensor elsewhere = from_host<float>({1}, std::vector<float>{1}, Device::host(1));

  const std::vector<float> x = random_floats(3);
  for (int call = 0; call < 3; ++call) {
    EXPECT_EQ(values(f(tensor({3}, x), elsewhere)), affine_of(x, 2, 0));
  }

  EXPECT_EQ(skips(f, SkipReason::kOtherDevice), 3u);
}

TEST_P(SkipTest, ADisabledFunctionRunsEagerlyInSilence) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); }, {.enabled = false});

  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(3);
    EXPECT_EQ(values(f(tensor({3}, x))), affine_of(x, 2, 0));
  }

  EXPECT_EQ(skips(f, SkipReason::kDisabled), 3u);
  EXPECT_TRUE(warnings_.lines().empty());
}

// Row 92 fallback_..._too_many_times: at the limit the next change runs eagerly; N stays.
// Acceptance: trees 92.
TEST_P(SkipTest, AtTheLimitOfRecordingsTheNextChangeRunsEagerlyAndOldOnesReplay) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); }, {.max_recordings = 2});

  for (int call = 0; call < 3; ++call) {
    for (const std::int64_t size : {2, 3, 4}) {
      const std::vector<float> x = random_floats(size);
      EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, 2, 0));
    }
  }

  EXPECT_EQ(f.stats().recordings, 2u);
  EXPECT_EQ(f.stats().replays, 2u);
  EXPECT_EQ(skips(f, SkipReason::kFunctionLimit), 2u);
  EXPECT_EQ(warnings_.lines().size(), 1u);
}

TEST_P(SkipTest, TheContextHasALimitOfItsOwn) {
  make_context({.max_recordings = 1});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 3, 0); });

  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(5);
    EXPECT_EQ(values(f(tensor({5}, x))), affine_of(x, 2, 0));
    EXPECT_EQ(values(g(tensor({5}, x))), affine_of(x, 3, 0));
  }

  EXPECT_EQ(f.stats().replays, 2u);
  EXPECT_EQ(skips(g, SkipReason::kContextLimit), 3u);
}

TEST_P(SkipTest, ACallInsideAStepFunctionIsPartOfItsRecording) {
  CompiledFunction inner = compile(context(), "inner", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction outer =
      compile(context(), "outer", [&](Tensor x) { return affine(inner(x), 1, 1); });

  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(5);
    EXPECT_EQ(values(outer(tensor({5}, x))), affine_of(x, 2, 1));
  }

  EXPECT_EQ(outer.stats().replays, 3u);
  EXPECT_EQ(skips(inner, SkipReason::kNestedCall), 2u);
}

// Row 170 cudagraph_or_error.
// Acceptance: trees 170.
TEST_P(SkipTest, WhereAGraphIsRequiredASkipIsAnError) {
  CompiledFunction f = compile(context(), "f",
                               [](Tensor x, Tensor) {
                                 update(x, 1, 1);
                                 return x;
                               },
                               {.inputs = {{.is_mutated = true}}, .require_graph = true});
  const Tensor x = random_tensor({2});
  const std::vector<float> before = values(x);

  try {
    (void)f(x, x);
    FAIL() << "nothing was thrown";
  } catch (const CaptureError& error) {
    EXPECT_THAT(std::string(error.message()), HasSubstr("'f' requires a graph"));
    EXPECT_THAT(std::string(error.message()), HasSubstr("overlapping_inputs"));
  }
  EXPECT_EQ(values(x), before);
}

TEST_P(SkipTest, WorkOnAStreamUnderForeignCaptureJoinsThatGraph) {
  Stream stream(device());
  make_context({.stream = stream.ref()});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  const Tensor x = random_tensor({4});
  for (int call = 0; call < 3; ++call)
    (void)f(x);

  Graph graph;
  {
    Capture capture(stream, CaptureMode::kThreadLocal);
    (void)f(x);
    ASSERT_EQ(capture.end(&graph), Code::kSuccess);
  }

  EXPECT_EQ(graph.node_count(), 1u);
  EXPECT_EQ(skips(f, SkipReason::kForeignCapture), 1u);
  graph = Graph();
  context_.reset();  // before its stream
}

}  // namespace
}  // namespace cgtree::testing
