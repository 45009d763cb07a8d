// Side streams inside step functions: forked, joined, with separate memory.
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

// Memory that one branch frees must not be used by the other: the graph runs both at once.
TEST_P(SideStreamTest, BranchesThatRunAtOnceShareNoMemory) {
  const Stream side(device());
  std::vector<std::uintptr_t> left, right;
  const auto chain = [](Tensor x, std::vector<std::uintptr_t>& seen) {
    for (int i = 0; i < 4; ++i) {
      x = affine(x, 1, 1);  // frees the previous x
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

// A library inside a step function may use a stream without making it current.
// Acceptance: graphs graph_record_stream.
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

// Returns the bytes that the context has reserved after calls of a step with sixteen large
// intermediates, each passed through `between`.
template <typename Between>
std::size_t reserved_by_steps_with(Device device, Between between) {
  Context context(device);
  const CompiledFunction f = compile(context, "f", [&](Tensor x) {
    for (int i = 0; i < 16; ++i)
      x = between(affine(x, 1, 1));
    return x;
  });
  const Tensor x = from_host<float>({1 << 20}, std::vector<float>(1 << 20, 1), device);
  for (int call = 0; call < 3; ++call)
    (void)f(x);
  return context.stats().pool_reserved_bytes;
}

TEST_P(SideStreamTest, AScopeOfTheStepsOwnStreamReservesNoMoreMemory) {
  const std::size_t without = reserved_by_steps_with(device(), [](Tensor x) { return x; });
  const std::size_t with = reserved_by_steps_with(device(), [](Tensor x) {
    const StreamScope scope(current_stream());
    update(x, 1, 1);
    return x;
  });
  EXPECT_EQ(with, without);
}

TEST_P(SideStreamTest, ASideStreamThatIsJoinedEachTimeReservesNoMoreMemory) {
  const Stream side(device());
  const std::size_t without = reserved_by_steps_with(device(), [](Tensor x) { return x; });
  const std::size_t with = reserved_by_steps_with(device(), [&](Tensor x) {
    on_side(side, [&] {
      update(x, 1, 1);
      return 0;
    });
    return x;
  });
  EXPECT_EQ(with, without);
}

// The fork precedes the free, so that the side stream is not ordered behind the work on the block.
TEST_P(SideStreamTest, MemoryFreedAfterAForkIsNotUsedByTheSideStream) {
  const Stream side(device());
  std::uintptr_t freed = 0, taken = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const StreamRef main = current_stream();
    Tensor right;
    for (int fork = 0; fork < 2; ++fork) {
      side.ref().wait_for(main);
      Tensor left = affine(x, 2, 0);
      freed = left.address();
      left = Tensor();
      {
        const StreamScope scope(side);
        right = affine(x, 3, 0);
        taken = right.address();
      }
      EXPECT_NE(freed, taken) << "fork " << fork;
      main.wait_for(side);
    }
    return affine(right, 1, 0);
  });

  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(1000);
    EXPECT_EQ(values(f(tensor({1000}, x))), affine_of(x, 3, 0));
  }
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

TEST_P(SideStreamTest, AnOutputThatASideStreamMayStillWriteStaysWhereItIs) {
  const Stream side(device());
  std::uintptr_t written = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    note_use(y.storage(), side);
    written = y.address();
    return y;
  });
  const std::vector<float> x = random_floats(4);

  const Tensor y = f(tensor({4}, x));  // a warm-up, which moves other outputs

  EXPECT_EQ(y.address(), written);
  EXPECT_EQ(values(y), affine_of(x, 2, 0));
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
