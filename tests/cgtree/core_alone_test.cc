// The core without extensions: a request that needs one is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "allocator/pool/pool.h"
#include "allocator/segments/device_sources.h"
#include "base/error.h"
#include "cgtree/values/graph_scope.h"
#include "tests/support/core_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CoreAloneTest : public TreeTest {
 protected:
  // Returns the message with which a function with these options is refused, or "".
  std::string refusal(const CompileOptions& options) {
    try {
      (void)compile(
          context(), "f", [](Tensor x) { return affine(x, 1, 0); }, options);
    } catch (const InvalidArgument& error) {
      return std::string(error.message());
    }
    return "";
  }
};
CGTREE_ON_ALL_DEVICES(CoreAloneTest);

TEST_P(CoreAloneTest, OptionsOfAFunctionThatNeedAnExtensionAreRefused) {
  const auto names = [](const char* option) {
    return AllOf(HasSubstr(option), HasSubstr("link //:cgtree"));
  };
  EXPECT_THAT(refusal({.inputs = {{.rebind = Rebind::kAuto}}}), names("InputOptions::rebind"));
  EXPECT_THAT(refusal({.outputs = {{.rebind = Rebind::kAlways}}}), names("OutputOptions::rebind"));
  EXPECT_THAT(refusal({.verify_first = 1}), names("verify_first"));
  EXPECT_THAT(refusal({.max_switch_nodes = 1}), names("max_switch_nodes"));
  EXPECT_EQ(refusal({}), "");
}

// Without the audit, each graph may refer to any memory.
TEST_P(CoreAloneTest, InvalidateDropsEveryRecording) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  const Tensor elsewhere = random_tensor({4});
  for (const std::int64_t size : {5, 7}) {
    for (int call = 0; call < 3; ++call)
      (void)f(random_tensor({size}));
  }
  ASSERT_EQ(f.stats().recordings, 2u);
  EXPECT_EQ(context().invalidate(elsewhere.data(), elsewhere.bytes()), 2u);
  const std::vector<float> x = random_floats(5);
  EXPECT_EQ(values(f(tensor({5}, x))), affine_of(x, 2, 1));
  EXPECT_EQ(f.stats().recordings, 3u);
}

TEST_P(CoreAloneTest, ResultsThatAreKeptForEverAreCopied) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  std::vector<Tensor> kept;
  std::vector<std::vector<float>> expected;
  for (int call = 0; call < 40; ++call) {
    const std::vector<float> x = random_floats(5);
    kept.push_back(f(tensor({5}, x)));
    expected.push_back(affine_of(x, 2, 1));
  }
  for (std::size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(values(kept[i]), expected[i]) << i;
  EXPECT_GE(f.stats().replays, 20u);
  kept.clear();
}

TEST_P(CoreAloneTest, ACallThatIsRefusedNamesItsReason) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); }, {.require_graph = true});
  const NoGraph none;
  try {
    (void)f(random_tensor({4}));
    FAIL();
  } catch (const CaptureError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no_graph_scope"));
  }
}

// The context evicts recordings to stay within its budget: there is no room for a second one.
TEST_P(CoreAloneTest, TheBudgetOfAContextIsKept) {
  constexpr std::int64_t kCount = 1 << 22;  // 16 MiB
  constexpr std::size_t kBudget = std::size_t{80} << 20;
  make_context({.max_bytes = kBudget});
  std::vector<CompiledFunction<Tensor(Tensor)>> functions;
  for (const std::int64_t count : {kCount, kCount + 1, kCount + 2, kCount + 3}) {
    functions.push_back(compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); }));
    const std::vector<float> x = random_floats(count);
    for (int call = 0; call < 3; ++call)
      EXPECT_EQ(values(functions.back()(tensor({count}, x))), affine_of(x, 2, 1));
    EXPECT_LE(stats().pool_reserved_bytes, kBudget);
  }
  EXPECT_THROW((void)functions[0](random_tensor({8 * kCount})), OutOfMemory);
}

TEST_P(CoreAloneTest, APoolWhoseThreadsMustCacheIsRefused) {
  DeviceSegmentSource source(device());
  EXPECT_THROW(Pool(source, {.thread_caching = ThreadCaching::kAlways}), InvalidArgument);
  const Pool pool(source, {.thread_caching = ThreadCaching::kWhenContended});
  EXPECT_NO_THROW((void)pool.checkpoint());
}

}  // namespace
}  // namespace cgtree::testing
