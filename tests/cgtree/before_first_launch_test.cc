// ContextOptions::before_first_launch: the caller's code in it does not belong to the step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <vector>

#include "base/error.h"
#include "cgtree/steps.h"
#include "cgtree/values/axes.h"
#include "interop/device/graph.h"
#include "interop/device/stream.h"
#include "interop/random/random.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "tests/support/core_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class BeforeFirstLaunchTest : public TreeTest {
 protected:
  template <typename Hook>
  void make_context_with(Hook hook) {
    make_context({.before_first_launch = [hook](const NewRecording&) { hook(); }});
  }
};
CGTREE_ON_ALL_DEVICES(BeforeFirstLaunchTest);

TEST_P(BeforeFirstLaunchTest, TheHookMayKeepItsAllocations) {
  std::vector<Tensor> tables;
  make_context_with([&] {
    tables.push_back(empty({64}, DType::kFloat32));
    update(tables.back(), 0, static_cast<float>(tables.size()));
  });
  const CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return affine(affine(x, 2, 0), 1, 1); });
  for (const std::int64_t size : {64, 128}) {
    for (int call = 0; call < 4; ++call) {
      const std::vector<float> x = random_floats(size);
      EXPECT_EQ(values(f(tensor({size}, x))), affine_of(affine_of(x, 2, 0), 1, 1));
    }
  }
  ASSERT_EQ(tables.size(), 2u);
  for (std::size_t i = 0; i < tables.size(); ++i)
    EXPECT_EQ(values(tables[i]), std::vector<float>(64, static_cast<float>(i + 1)));
  validate();
  tables.clear();
}

TEST_P(BeforeFirstLaunchTest, StepsCallTheHookToo) {
  Tensor table;
  make_context_with([&] { table = empty({64}, DType::kFloat32); });
  const Tensor cache = tensor({4}, std::vector<float>(4, 0));
  Steps steps(context(), "steps", {.bindings = {{.name = "cache", .is_mutated = true}}});
  const Binding given[] = {{reinterpret_cast<const void*>(cache.address()), cache.bytes()}};
  for (int call = 1; call <= 4; ++call) {
    for (Step step = steps.begin({}, given); step.must_run(); step.end())
      update(cache, 1, 1);
    context().synchronize();
    EXPECT_EQ(values(cache), std::vector<float>(4, static_cast<float>(call)));
  }
  EXPECT_TRUE(table.defined());
  table = Tensor();
}

TEST_P(BeforeFirstLaunchTest, AFunctionThatItCallsRunsEagerly) {
  std::optional<CompiledFunction<Tensor(Tensor)>> g;
  Tensor made;
  const std::vector<float> x = random_floats(8);
  const Tensor given = tensor({8}, x);
  make_context_with([&] { made = (*g)(given); });
  g = compile(context(), "g", [](Tensor y) { return affine(affine(y, 1, 0), 3, 0); });
  const CompiledFunction f = compile(context(), "f", [](Tensor y) { return affine(y, 2, 0); });
  for (int call = 0; call < 4; ++call)
    EXPECT_EQ(values(f(given)), affine_of(x, 2, 0));
  EXPECT_EQ(values(made), affine_of(x, 3, 0));
  made = Tensor();
  g.reset();
}

// Captures in the hook are the caller's, and do not become part of the recording.
TEST_P(BeforeFirstLaunchTest, AGraphThatItCapturesKeepsWhatItReads) {
  Tensor y, read = random_tensor({8});
  Graph graph;
  const Stream side(device());
  make_context_with([&] {
    if (!y.defined()) return;
    Capture capture(side, CaptureMode::kThreadLocal);
    copy(read, y, side);
    check(capture.end(&graph), "end the capture");
  });
  const CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  const CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 1, 1); });
  const std::vector<float> x = random_floats(8);
  for (int call = 0; call < 3; ++call)
    (void)f(tensor({8}, x));
  y = f(tensor({8}, x));
  for (int call = 0; call < 2; ++call)
    (void)g(random_tensor({8}));
  ASSERT_NE(graph.handle(), GraphHandle::kNull);
  y = Tensor();
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({8}));
  context().synchronize();

  const GraphExec exec(side.ref().graphs(), graph);
  check(exec.api().launch(exec.handle(), side.ref().handle()), "launch");
  side.synchronize();

  EXPECT_EQ(values(read), affine_of(x, 2, 0));
  EXPECT_EQ(context().release_captured(), 1u);
}

TEST_P(BeforeFirstLaunchTest, DrawsMoveGeneratorsAndGoBackIfItThrows) {
  const Generator generator(seed_);
  std::vector<float> drawn;
  bool fails = true;
  make_context_with([&] {
    drawn = values(uniform({8}, generator));
    if (fails) throw std::runtime_error("no peer memory");
  });
  const CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  const Tensor x = random_tensor({4});
  (void)f(x);
  for (int call = 0; call < 3; ++call) {
    EXPECT_THROW((void)f(x), std::runtime_error);
    EXPECT_EQ(generator.state().offset, 0u);
  }
  fails = false;
  (void)f(x);
  const Tensor first = context().eager([&] { return uniform({8}, Generator(seed_)); });
  EXPECT_EQ(drawn, values(first));
  EXPECT_EQ(generator.state().offset, 2u);
}

TEST_P(BeforeFirstLaunchTest, TheLengthsOfTheCallAreNotThere) {
  make_context_with([&] { (void)axis_length("n"); });
  const CompiledFunction f =
      compile(context(), "f",
              [](Tensor x) {
                (void)axis_length("n");
                return affine(x, 2, 0);
              },
              {.inputs = {{.dynamic = {{0, "n"}}}}, .buckets = {{"n", {4}}}});
  const Tensor x = random_tensor({3});
  (void)f(x);
  EXPECT_THAT([&] { (void)f(x); },
              ThrowsMessage<InvalidArgument>(HasSubstr("outside of a step function")));
}

}  // namespace
}  // namespace cgtree::testing
