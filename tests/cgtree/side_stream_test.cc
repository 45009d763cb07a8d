// Side streams inside step functions: forked, joined, with memory of their own.
#include <gtest/gtest.h>

#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

class SideStreamTest : public TreeTest {
 protected:
  // Runs `body` on `side`, between a fork from the current stream and a join with it.
  template <typename Body>
  static auto on_side(StreamRef side, Body body) {
    const StreamRef main = current_stream();
    side.wait_for(main);
    auto result = [&] {
      const StreamScope scope(side);
      return body();
    }();
    main.wait_for(side);
    return result;
  }
};
CGTREE_ON_ALL_DEVICES(SideStreamTest);

TEST_P(SideStreamTest, WorkOnASideStreamIsPartOfTheRecording) {
  const Stream side(device());
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const Tensor left = affine(x, 2, 0);
    const Tensor right = on_side(side, [&] { return affine(affine(left, 3, 1), 1, 1); });
    return add(left, right);
  });

  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(1000);
    std::vector<float> expected(1000);
    for (std::size_t i = 0; i < 1000; ++i)
      expected[i] = 2 * x[i] + ((3 * (2 * x[i]) + 1) + 1);
    EXPECT_EQ(values(f(tensor({1000}, x))), expected);
  }

  EXPECT_EQ(f.stats().replays, 3u);
}

// What one branch frees must not become the other's memory: the graph runs both at once.
TEST_P(SideStreamTest, BranchesThatRunAtOnceShareNoMemory) {
  const Stream side(device());
  std::vector<std::uintptr_t> left, right;
  const auto chain = [](Tensor x, std::vector<std::uintptr_t>& seen) {
    for (int i = 0; i < 4; ++i) {
      x = affine(x, 1, 1);  // the one before is freed here
      seen.push_back(x.address());
    }
    return x;
  };
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    left.clear();
    right.clear();
    const StreamRef main = current_stream();
    side.ref().wait_for(main);
    Tensor a, b;
    {
      const StreamScope scope(side);
      a = chain(affine(x, 2, 0), right);
    }
    b = chain(affine(x, 3, 0), left);
    main.wait_for(side);
    return add(a, b);
  });

  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(5000);
    std::vector<float> expected(5000);
    for (std::size_t i = 0; i < 5000; ++i)
      expected[i] = (((((2 * x[i]) + 1) + 1) + 1) + 1) + (((((3 * x[i]) + 1) + 1) + 1) + 1);
    EXPECT_EQ(values(f(tensor({5000}, x))), expected);
  }

  for (const std::uintptr_t address : left)
    EXPECT_EQ(std::count(right.begin(), right.end(), address), 0) << "shared by both branches";
  EXPECT_EQ(f.stats().replays, 2u);
}

// The library a step function calls may use a stream that it does not make current.
TEST_P(SideStreamTest, MemoryThatIsUsedElsewhereIsNotReusedInTheStep) {
  const Stream side(device());
  std::uintptr_t used = 0, next = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    Tensor scratch = affine(x, 2, 0);
    used = scratch.address();
    note_use(scratch.storage(), side);
    scratch = Tensor();
    const Tensor y = affine(x, 3, 0);
    next = affine(y, 1, 0).address();
    return y;
  });

  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(100);
    EXPECT_EQ(values(f(tensor({100}, x))), affine_of(x, 3, 0));
    EXPECT_NE(used, next);
  }
}

TEST_P(SideStreamTest, WithoutASideStreamMemoryIsReusedAtOnce) {
  std::uintptr_t first = 0, second = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    first = affine(x, 2, 0).address();
    second = affine(x, 3, 0).address();
    return affine(x, 4, 0);
  });
  (void)f(random_tensor({100}));

  EXPECT_EQ(first, second);
}

TEST_P(SideStreamTest, ASideStreamThatIsNotJoinedIsNamedAndTheFunctionRunsEagerly) {
  const Stream side(device());
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel level, const std::string& line) {
    if (level >= LogLevel::kWarn) warnings.push_back(line);
  });
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    side.ref().wait_for(current_stream());
    const StreamScope scope(side);
    return affine(x, 2, 0);
  });
  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(4);
    const Tensor y = f(tensor({4}, x));
    side.synchronize();
    EXPECT_EQ(values(y), affine_of(x, 2, 0));
  }
  set_log_sink(nullptr);

  EXPECT_EQ(f.stats().skips[static_cast<int>(SkipReason::kCaptureFailed)], 2u);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("join"), std::string::npos) << warnings[0];
}

TEST_P(SideStreamTest, AnEagerGapMayForkToo) {
  const Stream side(device());
  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(100);
    const Tensor y = context().eager([&] {
      return on_side(side, [&] { return affine(affine(tensor({100}, x), 2, 0), 1, 1); });
    });
    EXPECT_EQ(values(y), affine_of(affine_of(x, 2, 0), 1, 1));
  }
}

}  // namespace
}  // namespace cgtree::testing
