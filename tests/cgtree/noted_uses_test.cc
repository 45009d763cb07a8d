// Uses that note_use() reports while a step is open: their memory is not used again before they
// end.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "cgtree/steps.h"
#include "cgtree/values/eager_break.h"
#include "extensions/verify/verify.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "tests/cgtree/stream_order_fixture.h"

namespace cgtree::testing {
namespace {

class NotedUsesTest : public StreamOrderTest {
 protected:
  using Work = std::function<void(float)>;
  // Calls noted(value) inside a step, and overwrite() inside another step or later in the same
  // step.
  using Run = std::function<void(Context& context, const Tensor& one, const Work& noted,
                                 const std::function<void()>& overwrite)>;

  // noted() makes a tensor in the step's memory, has another stream read it, notes that use, and
  // releases the tensor; overwrite() makes other tensors. The stream must read the values written
  // by noted().
  void expect_ordered(const Run& run, ContextOptions options = {}) {
    expect_right_in_any_order([&](Device device) {
      const Stream side(device);
      Context context(device, options);
      const Tensor one = filled(device, 1), read = filled(device, 0);
      std::optional<float> expected;
      bool is_right = true;
      const Work noted = [&](float value) {
        const Tensor scratch = affine(one, value, 0);
        side.ref().wait_for(current_stream());
        enqueue_copy(side, read, scratch);
        note_use(scratch.storage(), side);
        expected = value;
      };
      const auto overwrite = [&] {
        for (int i = 0; i < 3; ++i)
          (void)affine(one, -1, 0);
      };
      for (int round = 1; round <= 5; ++round) {
        expected.reset();
        run(
            context, one, [&](float) { noted(static_cast<float>(round)); }, overwrite);
        wait_for_all(device);
        is_right = is_right && (!expected || holds(read, *expected));
      }
      return is_right;
    });
  }
};

TEST_F(NotedUsesTest, InAnEagerRegionKeepTheMemoryFromTheNextRegion) {
  expect_ordered([](Context& context, const Tensor&, const Work& noted, const auto& overwrite) {
    context.eager([&] { noted(1); });
    context.eager(overwrite);
  });
}

TEST_F(NotedUsesTest, InAnEagerRegionKeepTheMemoryFromLaterWorkOfTheRegion) {
  expect_ordered([](Context& context, const Tensor&, const Work& noted, const auto& overwrite) {
    context.eager([&] {
      noted(1);
      overwrite();
    });
  });
}

// As copy() does, which notes the use of both tensors.
TEST_F(NotedUsesTest, OfATensorThatOutlivesTheRegionCountWhenItGoes) {
  expect_right_in_any_order([](Device device) {
    const Stream side(device);
    Context context(device);
    const Tensor one = filled(device, 1), read = filled(device, 0);
    bool is_right = true;
    for (int round = 0; round < 4; ++round) {
      Tensor made = context.eager([&] {
        const Tensor y = affine(one, 2, 0);
        side.ref().wait_for(current_stream());
        copy(read, y, side);
        return y;
      });
      made = Tensor();
      context.eager([&] { (void)affine(one, 9, 0); });
      wait_for_all(device);
      is_right = is_right && holds(read, 2);
    }
    return is_right;
  });
}

TEST_F(NotedUsesTest, InAFunctionThatIsOffCount) {
  expect_ordered([](Context& context, const Tensor& one, const Work& noted, const auto& overwrite) {
    const CompiledFunction f = compile(context, "f",
                                       [&](Tensor x) {
                                         noted(1);
                                         return x;
                                       },
                                       {.enabled = false});
    (void)f(one);
    context.eager(overwrite);
  });
}

TEST_F(NotedUsesTest, InAWarmUpCount) {
  expect_ordered([](Context& context, const Tensor& one, const Work& noted, const auto& overwrite) {
    const CompiledFunction f = compile(context, "f", [&](Tensor x) {
      noted(1);
      return affine(x, 2, 0);
    });
    const CompiledFunction g = compile(context, "g", [&](Tensor x) {
      overwrite();
      return affine(x, 2, 0);
    });
    (void)f(one);
    (void)g(one);
    (void)g(one);  // recorded, in the same scratch memory
  });
}

TEST_F(NotedUsesTest, OfAnOutputInItsWarmUpKeepItsPlaceFromReplays) {
  expect_right_in_any_order([](Device device) {
    const Stream side(device);
    Context context(device);
    const Tensor one = filled(device, 1), read = filled(device, 0);
    const CompiledFunction g = compile(context, "g", [](Tensor x) { return affine(x, 9, 0); });
    bool is_right = true;
    for (int round = 0; round < 3; ++round) {
      const CompiledFunction f = compile(context, "f", [&](Tensor x) {
        const Tensor y = affine(x, 2, 0);
        side.ref().wait_for(current_stream());
        enqueue_copy(side, read, y);
        note_use(y.storage(), side);
        return y;
      });
      (void)f(one);
      for (int call = 0; call < 3; ++call)
        (void)g(one);
      wait_for_all(device);
      is_right = is_right && holds(read, 2);
    }
    return is_right;
  });
}

// Its side stream is not joined, so that no capture of the step succeeds.
TEST_F(NotedUsesTest, InAStepThatRunsEagerlyForGoodCount) {
  expect_right_in_any_order([](Device device) {
    const Stream side(device);
    Context context(device);
    const Tensor one = filled(device, 1), read = filled(device, 0);
    const CompiledFunction f = compile(context, "f", [&](Tensor x) {
      const Tensor scratch = affine(x, 2, 0);
      side.ref().wait_for(current_stream());
      enqueue_copy(side, read, scratch);
      note_use(scratch.storage(), side);
      return affine(x, 3, 0);
    });
    bool is_right = true;
    for (int call = 0; call < 4; ++call) {
      (void)f(one);
      context.eager([&] {
        for (int i = 0; i < 3; ++i)
          (void)affine(one, 9, 0);
      });
      wait_for_all(device);
      is_right = is_right && holds(read, 2);
    }
    return is_right && f.stats().skipped(SkipReason::kCaptureFailed) == 3;
  });
}

TEST_F(NotedUsesTest, InANestedCallCount) {
  expect_ordered([](Context& context, const Tensor& one, const Work& noted, const auto& overwrite) {
    const CompiledFunction inner = compile(context, "inner", [&](Tensor x) {
      noted(1);
      return x;
    });
    context.eager([&] { (void)inner(one); });
    context.eager(overwrite);
  });
}

TEST_F(NotedUsesTest, InABreakOfAReplayCount) {
  expect_right_in_any_order([](Device device) {
    const Stream side(device);
    Context context(device);
    const Tensor one = filled(device, 1), read = filled(device, 0);
    const CompiledFunction f = compile(context, "f", [&](Tensor x) {
      const Tensor y = affine(x, 3, 0);
      eager_break([&](const StepValues&) {
        const Tensor scratch = affine(one, 2, 0);
        side.ref().wait_for(current_stream());
        enqueue_copy(side, read, scratch);
        note_use(scratch.storage(), side);
      });
      return affine(y, 1, 0);
    });
    bool is_right = true;
    for (int call = 0; call < 5; ++call) {
      (void)f(one);
      context.eager([&] {
        for (int i = 0; i < 3; ++i)
          (void)affine(one, 9, 0);
      });
      wait_for_all(device);
      is_right = is_right && holds(read, 2);
    }
    return is_right && f.stats().replays >= 2;
  });
}

TEST_F(NotedUsesTest, InTheBodyOfStepsCount) {
  expect_ordered([](Context& context, const Tensor&, const Work& noted, const auto& overwrite) {
    Steps steps(context, "engine", {.enabled = false});
    for (Step step = steps.begin(Key{{"n", 1}}, {}); step.must_run(); step.end())
      noted(1);
    context.eager(overwrite);
  });
}

TEST_F(NotedUsesTest, InTheEagerRunOfAVerifiedReplayCount) {
  expect_right_in_any_order([](Device device) {
    const Stream side(device);
    Context context(device, {.extensions = {verify({.every = 1})}});
    const Tensor one = filled(device, 1), read = filled(device, 0);
    const CompiledFunction f = compile(context, "f", [&](Tensor x) {
      const Tensor scratch = affine(x, 2, 0);
      side.ref().wait_for(current_stream());
      copy(read, scratch, side);
      current_stream().wait_for(side);
      return affine(x, 3, 0);
    });
    bool is_right = true;
    for (int call = 0; call < 5; ++call) {
      (void)f(one);
      context.eager([&] {
        for (int i = 0; i < 3; ++i)
          (void)affine(one, 9, 0);
      });
      wait_for_all(device);
      is_right = is_right && holds(read, 2);
    }
    return is_right;
  });
}

// The stream does not capture, so that it reads once, immediately.
TEST_F(NotedUsesTest, OnAStreamOutsideOfTheCaptureThatIsOpenCount) {
  expect_right_in_any_order([](Device device) {
    const Stream side(device);
    Context context(device);
    const Tensor one = filled(device, 1), read = filled(device, 0);
    const CompiledFunction make = compile(context, "make", [](Tensor x) { return twice(x); });
    warm(make, one);
    bool is_right = true;
    for (int round = 0; round < 3; ++round) {
      Tensor y;
      bool is_captured = false;
      std::optional<CompiledFunction<Tensor(Tensor)>> f = compile(context, "f", [&](Tensor x) {
        if (current_stream().is_capturing()) {
          is_captured = true;
          enqueue_copy(side, read, y);
          note_use(y.storage(), side);
        }
        return affine(x, 3, 0);
      });
      (void)(*f)(one);
      y = make(one);
      side.ref().wait_for(context.stream());
      (void)(*f)(one);
      y = Tensor();
      f.reset();  // drops the tensors that its recording keeps
      const Tensor nine = context.eager([&] { return affine(one, 9, 0); });
      (void)make(nine);
      wait_for_all(device);
      is_right = is_right && is_captured && holds(read, 2);
    }
    return is_right;
  });
}

// The recording keeps the tensor. Its owner is another context, which must be told of work outside
// the recording.
TEST_F(NotedUsesTest, OfAnotherContextsOutputOutsideOfTheCaptureThatIsOpenCount) {
  expect_right_in_any_order([](Device device) {
    const Stream side(device);
    Context context(device), another(device);
    const Tensor one = filled(device, 1), read = filled(device, 0);
    const CompiledFunction make = compile(another, "make", [](Tensor x) { return twice(x); });
    warm(make, one);
    Tensor y;
    bool is_captured = false;
    std::optional<CompiledFunction<Tensor(Tensor)>> f = compile(context, "f", [&](Tensor x) {
      if (current_stream().is_capturing()) {
        is_captured = true;
        enqueue_copy(side, read, y);
        note_use(y.storage(), side);
      }
      return affine(x, 3, 0);
    });
    (void)(*f)(one);
    y = make(one);
    side.ref().wait_for(another.stream());
    (void)(*f)(one);
    y = Tensor();
    f.reset();  // drops the tensors that its recording keeps
    const Tensor nine = another.eager([&] { return affine(one, 9, 0); });
    (void)make(nine);
    wait_for_all(device);
    return is_captured && holds(read, 2);
  });
}

// The exception may hold a tensor of the step.
TEST_F(NotedUsesTest, InAStepThatThrowsCountWhenItsMemoryIsGivenBack) {
  expect_right_in_any_order([](Device device) {
    const Stream side(device);
    Context context(device);
    const Tensor one = filled(device, 1), read = filled(device, 0);
    Tensor held;
    bool throws = true;
    const CompiledFunction f = compile(context, "f", [&](Tensor x) {
      if (!throws) return affine(affine(x, 9, 0), 9, 0);
      held = affine(x, 2, 0);
      side.ref().wait_for(current_stream());
      enqueue_copy(side, read, held);
      note_use(held.storage(), side);
      throw std::runtime_error("refused");
    });
    try {
      (void)f(one);
    } catch (const std::runtime_error&) {
    }
    throws = false;
    (void)f(one);
    wait_for_all(device);
    return holds(read, 2);
  });
}

}  // namespace
}  // namespace cgtree::testing
