// Eager breaks: each replay of a step with breaks equals the step without graphs.
#include "cgtree/values/eager_break.h"
#include "cgtree/memory/context_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cgtree/steps.h"
#include "interop/device/device_api.h"
#include "interop/device/kernel.h"
#include "interop/random/random.h"
#include "simulator/host_device.h"
#include "simulator/strict_memory.h"
#include "tests/support/core_fixture.h"
#include "tests/support/host_slot.h"
#include "tests/support/inside.h"
#include "tests/support/test_kernels.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kCount = 32;

struct Factor {
  float value = 0;
};

// Enqueues y += a * x on `stream`.
void axpy(float a, const void* x, void* y, StreamRef stream = current_stream()) {
  check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(kCount),
                                      arguments_of(a, x, y, kCount)),
        "launch axpy");
}

void* address(const Tensor& tensor) {
  return reinterpret_cast<void*>(tensor.address());
}

class EagerBreakTest : public TreeTest {
 protected:
  std::vector<float> small_numbers() {
    std::vector<float> numbers(kCount);
    for (float& number : numbers)
      number = static_cast<float>(random_() % 64);
    return numbers;
  }
  static std::vector<float> times(std::vector<float> numbers, float factor, float plus) {
    for (float& number : numbers)
      number = factor * number + plus;
    return numbers;
  }
};
CGTREE_ON_ALL_DEVICES(EagerBreakTest);

TEST_P(EagerBreakTest, ItsFunctionRunsInEachReplayWithTheValuesOfTheCall) {
  int runs = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x, Tensor) {
    Tensor y = affine(x, 2, 0);
    eager_break([&runs, to = address(y)](const StepValues& values) {
      axpy(values.get<Factor>(1).value, to, to);
      ++runs;
    });
    return affine(y, 1, 1);
  });
  for (int call = 0; call < 6; ++call) {
    const std::vector<float> x = small_numbers();
    const Factor factor{static_cast<float>(call)};
    const Tensor y = f(tensor({kCount}, x), step_block(factor));
    EXPECT_EQ(runs, call + 1);
    EXPECT_EQ(values(y), times(x, 2 * (1 + factor.value), 1)) << call;
  }
  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(f.stats().replays, 4u);
}

TEST_P(EagerBreakTest, ItSeesTheKeyThatTheStepSees) {
  std::vector<std::int64_t> seen;
  CompiledFunction f = compile(
      context(), "f",
      [&](Tensor x) {
        eager_break([&seen](const StepValues&) { seen.push_back(current_key().number("length")); });
        return affine(x, 1, 1);
      },
      {.keys = {{.name = "length", .policy = AxisPolicy::kPowersOfTwo}}});
  const Tensor x = random_tensor({kCount});
  for (const int length : {5, 6, 7, 8})
    (void)f.keyed({{"length", length}})(x);
  EXPECT_EQ(seen, std::vector<std::int64_t>(4, 8));
  EXPECT_EQ(f.stats().replays, 2u);
}

TEST_P(EagerBreakTest, ItMayWaitForTheDeviceAndDecideOnTheHost) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    Tensor y = affine(x, 1, 1);
    eager_break([y = y.data<float>(), to = address(y)](const StepValues&) {
      const StreamRef stream = current_stream();
      float first = 0;
      check(stream.api().copy(stream.handle(), &first, y, sizeof(first)), "read");
      stream.synchronize();
      if (first > 30) axpy(1, to, to);
    });
    return affine(y, 3, 0);
  });
  for (int call = 0; call < 10; ++call) {
    std::vector<float> x = small_numbers();
    const float factor = x[0] + 1 > 30 ? 6.0f : 3.0f;
    EXPECT_EQ(values(f(tensor({kCount}, x))), times(x, factor, factor)) << x[0];
  }
  EXPECT_EQ(f.stats().replays, 8u);
}

TEST_P(EagerBreakTest, ItsExceptionReachesTheCallerAndTheNextCallIsRight) {
  bool throws = false;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    Tensor y = affine(x, 2, 0);
    eager_break([&throws](const StepValues&) {
      if (throws) throw std::runtime_error("the break");
    });
    return affine(y, 1, 1);
  });
  const std::vector<float> x = small_numbers();
  const Tensor given = tensor({kCount}, x);
  for (int call = 0; call < 8; ++call) {  // at the warm-up, the recording and replays
    throws = true;
    EXPECT_THAT([&] { (void)f(given); }, ThrowsMessage<std::runtime_error>("the break"));
    validate();
    throws = false;
    EXPECT_EQ(values(f(given)), times(x, 2, 1));
  }
  EXPECT_EQ(f.stats().failures, 8u);
}

TEST_P(EagerBreakTest, AMemoryErrorOfItsFunctionDoesNotRunTheFirstPartTwice) {
  bool throws = false;
  const Tensor sum = tensor({kCount}, std::vector<float>(kCount, 0));
  CompiledFunction f = compile(context(), "f",
                               [&](Tensor to, Tensor x) {
                                 axpy(1, x.data<float>(), to.data<float>());
                                 eager_break([&throws](const StepValues&) {
                                   if (throws) throw OutOfMemory("of the break");
                                 });
                               },
                               {.inputs = {{.is_static = true, .is_mutated = true}}});
  const Tensor x = tensor({kCount}, std::vector<float>(kCount, 1));
  f(sum, x);
  throws = true;
  for (int call = 0; call < 3; ++call)
    EXPECT_THROW(f(sum, x), OutOfMemory);
  EXPECT_EQ(values(sum), std::vector<float>(kCount, 4));
}

// The recording of the step is in use, although no handle to its outputs exists yet.
TEST_P(EagerBreakTest, MemoryThatIsShortInItCostsNoRecording) {
  constexpr std::int64_t kBudget = 64 << 20;
  make_context({.max_bytes = kBudget, .at_limit = AtLimit::kEvict});
  bool asks = false;
  CompiledFunction f = compile(context(), "f", [&asks](Tensor x) {
    Tensor y = affine(x, 2, 0);
    eager_break([&asks, to = address(y)](const StepValues&) {
      if (asks) {
        EXPECT_THROW((void)empty({kBudget}, DType::kUInt8), OutOfMemory);
      }
      axpy(1, to, to);
    });
    return affine(y, 1, 1);
  });
  CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 3, 0); });
  const std::vector<float> x = small_numbers();
  const Tensor given = tensor({kCount}, x);
  for (int call = 0; call < 5; ++call) {
    asks = call > 0;
    const Tensor y = f(given);
    const Tensor z = g(given);
    EXPECT_EQ(values(y), times(x, 4, 1));
    EXPECT_EQ(values(z), times(x, 3, 0));
    validate();
  }
  EXPECT_EQ(f.stats().evictions + g.stats().evictions, 0u);
  EXPECT_EQ(f.stats().replays, 3u);
}

// The break runs in the warm-up, and not in the capture.
TEST_P(EagerBreakTest, AllocationsOfABreakAreNotTakenForOutputs) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    eager_break([](const StepValues&) { (void)empty({kCount}, DType::kFloat32); });
    return affine(x, 2, 1);
  });
  const Tensor x = random_tensor({kCount});
  (void)f(x);
  for (int call = 0; call < 2; ++call) {
    const Tensor y = f(x);
    EXPECT_TRUE(memory_of(context()).pool(Region::kOutput).owns(address(y))) << call;
  }
  EXPECT_EQ(f.stats().replays, 1u);
}

TEST_P(EagerBreakTest, ImpossibleActionsAreRefusedByName) {
  const auto nothing = [](const StepValues&) {};
  EXPECT_THAT([&] { eager_break(nothing); },
              ThrowsMessage<InvalidArgument>(HasSubstr("outside of a step")));
  const Tensor x = random_tensor({kCount});
  CompiledFunction inner = compile(context(), "inner", [&](Tensor a) {
    eager_break(nothing);
    return affine(a, 1, 0);
  });
  CompiledFunction outer = compile(context(), "outer", [&](Tensor a) { return inner(a); });
  EXPECT_THAT([&] { (void)outer(x); },
              ThrowsMessage<InvalidArgument>(HasSubstr("another step function calls")));
  CompiledFunction twice = compile(context(), "twice", [&](Tensor a) {
    eager_break([&](const StepValues&) { eager_break(nothing); });
    return affine(a, 1, 0);
  });
  EXPECT_THAT([&] { (void)twice(x); },
              ThrowsMessage<InvalidArgument>(HasSubstr("the function of another break")));
  CompiledFunction wrong = compile(context(), "wrong", [&](Tensor a) {
    eager_break([](const StepValues& values) { (void)values.get<Factor>(0); });
    return affine(a, 1, 0);
  });
  EXPECT_THAT([&] { (void)wrong(x); },
              ThrowsMessage<InvalidArgument>(HasSubstr("not passed by value")));
  Generator generator(1);
  CompiledFunction draws = compile(context(), "draws", [&](Tensor a) {
    eager_break([&](const StepValues&) { (void)generator.state(); });
    return affine(a, 1, 0);
  });
  EXPECT_THAT([&] { (void)draws(x); },
              ThrowsMessage<InvalidArgument>(HasSubstr("draw in front of the break")));
  CompiledFunction asks = compile(context(), "asks",
                                  [](Tensor a) {
                                    eager_break([](const StepValues&) { (void)axis_length("n"); });
                                    return affine(a, 1, 0);
                                  },
                                  {.inputs = {{.dynamic = {{0, "n"}}}}});
  EXPECT_THAT([&] { (void)asks(x); },
              ThrowsMessage<InvalidArgument>(HasSubstr("in an eager_break()")));
  validate();
}

TEST_P(EagerBreakTest, AStepThatDoesNotJoinItsStreamsRunsEagerly) {
  const Stream side(device(), StreamKind::kNonBlocking);
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    Tensor y = affine(x, 2, 0);
    side.ref().wait_for(current_stream());
    axpy(0, address(y), address(y), side);
    eager_break([](const StepValues&) {});
    return affine(y, 1, 1);
  });
  const std::vector<float> x = small_numbers();
  const Tensor given = tensor({kCount}, x);
  for (int call = 0; call < 4; ++call)
    EXPECT_EQ(values(f(given)), times(x, 2, 1)) << call;
  EXPECT_EQ(f.stats().recordings, 0u);
  EXPECT_GT(f.stats().skipped(), 0u);
}

// A call uses the tensors that it was given from beginning to end.
TEST_P(EagerBreakTest, BreaksThatAssignTheCallersVariablesDoNotChangeTheCall) {
  Tensor given, block, sum;
  std::vector<float> seen;
  Tensor other;
  CompiledFunction f = compile(
      context(), "f",
      [&](Tensor x, Tensor, Tensor to) {
        Tensor y = affine(x, 2, 0);
        axpy(1, address(x), address(to));
        eager_break([&](const StepValues& values) {
          seen.push_back(values.get<Factor>(1).value);
          given = sum = Tensor();
          block = step_block(Factor{-1});
          // Allocated on another thread, outside the context: the new tensor would get the memory
          // of `sum` if that was freed.
          std::thread([&] { other = tensor({kCount}, std::vector<float>(kCount, 7)); }).join();
        });
        eager_break([&](const StepValues& values) { seen.push_back(values.get<Factor>(1).value); });
        return std::pair(affine(y, 1, 1), x);
      },
      {.inputs = {{}, {}, {.is_mutated = true}}});
  for (int call = 0; call < 6; ++call) {
    const std::vector<float> x = small_numbers();
    given = tensor({kCount}, x);
    const std::uintptr_t given_address = given.address();
    block = step_block(Factor{static_cast<float>(call)});
    sum = tensor({kCount}, std::vector<float>(kCount, 0));
    seen.clear();
    const auto [y, same] = f(given, block, sum);
    EXPECT_EQ(values(y), times(x, 2, 1)) << call;
    EXPECT_EQ(same.address(), given_address) << call;
    EXPECT_EQ(values(same), x) << call;
    EXPECT_EQ(seen, std::vector<float>(2, static_cast<float>(call)));
    EXPECT_EQ(values(other), std::vector<float>(kCount, 7)) << call;
  }
  EXPECT_EQ(f.stats().replays, 4u);
}

TEST_P(EagerBreakTest, AnOutputIsSlicedByTheInputThatWasGiven) {
  Tensor given;
  CompiledFunction f = compile(context(), "f",
                               [&](Tensor x) {
                                 Tensor y = affine(x, 2, 0);
                                 eager_break([&](const StepValues&) { given = Tensor(); });
                                 return affine(y, 1, 1);
                               },
                               {.inputs = {{.dynamic = {{0, "n"}}}},
                                .buckets = {{"n", {8}}},
                                .outputs = {{.dynamic = {{0, "n"}}}}});
  for (const std::int64_t size : {3, 4, 5, 6, 8}) {
    const std::vector<float> x = random_floats(size);
    given = tensor({size}, x);
    EXPECT_EQ(values(f(given)), affine_of(x, 2, 1)) << size;
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

// After a failed capture the step runs again, by which time the caller's key may have changed.
TEST_P(EagerBreakTest, ACallKeepsTheKeyThatItWasGiven) {
  Key key;
  std::vector<std::int64_t> seen;
  const CompiledCore f(context(), "f",
                       [&](std::span<const Tensor> inputs) {
                         seen.push_back(current_key().number("n"));
                         key = Key({{"n", 7}});
                         const StreamRef stream = current_stream();
                         (void)stream.api().synchronize_stream(stream.handle());
                         return std::vector<Tensor>{affine(inputs[0], 1, 1)};
                       },
                       {});
  const Tensor x = random_tensor({kCount});
  for (int call = 0; call < 2; ++call) {
    key = Key({{"n", 5}});
    TensorList outputs;
    f.call(InputList(std::span(&x, 1)).with_key(key.text()), outputs);
  }
  EXPECT_EQ(seen, std::vector<std::int64_t>(3, 5));
  EXPECT_EQ(f.stats().skipped(SkipReason::kCaptureFailed), 1u);
}

TEST_P(EagerBreakTest, ARefusalInABreakDoesNotAffectTheCall) {
  std::optional<CompiledFunction<Tensor(Tensor)>> f;
  const Tensor x = tensor({kCount}, small_numbers());
  int breaks = 0;
  CompiledFunction g = compile(context(), "g", [](Tensor a) { return affine(a, 3, 0); });
  f.emplace(compile(context(), "f", [&](Tensor a) {
    Tensor y = affine(a, 2, 0);
    eager_break([&, to = address(y)](const StepValues&) {
      ++breaks;
      EXPECT_THROW(context().mark_step(), ConcurrentUse);
      EXPECT_THROW((void)context().trim(), ConcurrentUse);
      EXPECT_THROW((void)context().release_memory(), ConcurrentUse);
      EXPECT_THROW((void)context().invalidate(to, 1), ConcurrentUse);
      EXPECT_THROW(context().keep(x), ConcurrentUse);
      std::thread([&] { EXPECT_THROW((void)g(x), ConcurrentUse); }).join();
      EXPECT_EQ(f->explain(x).skip_reason, SkipReason::kNestedCall);
      f->freeze();
      f->unfreeze();
      const Tensor z = g(Tensor(x));
      axpy(1, z.data<float>(), to);
    });
    return affine(y, 1, 1);
  }));
  for (int call = 0; call < 5; ++call) {
    EXPECT_EQ(values((*f)(x)), affine_of(values(x), 5, 1)) << call;
    validate();
  }
  EXPECT_EQ(breaks, 5);
  EXPECT_EQ(f->stats().replays, 3u);
}

TEST_P(EagerBreakTest, AFunctionThatEndsInItsOwnBreakFinishesTheCall) {
  for (const int last : {0, 1, 2, 3}) {  // the warm-up, the recording, and replays
    std::optional<CompiledFunction<Tensor(Tensor)>> f;
    int call = 0;
    f.emplace(compile(context(), "f", [&](Tensor x) {
      Tensor y = affine(x, 2, 0);
      eager_break([&f, &call, last](const StepValues&) {
        if (call == last) f.reset();
      });
      return affine(y, 1, 1);
    }));
    const std::vector<float> x = small_numbers();
    Tensor y;
    for (; call <= last; ++call)
      y = (*f)(tensor({kCount}, x));
    EXPECT_FALSE(f);
    EXPECT_EQ(values(y), times(x, 2, 1)) << last;
    validate();
    EXPECT_EQ(recording_count(), 0u);
  }
}

// The call is then the context's last owner. A recording is dropped inside the context, by a call
// or by upkeep.
TEST_P(EagerBreakTest, ObjectsOfABreaksFunctionMayCallTheContextInTheirDestructors) {
  make_context({.max_recordings = 1, .at_limit = AtLimit::kEvict});
  const CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 1, 1); });
  const Tensor x = random_tensor({kCount});
  int ended = 0;
  std::string refusal;
  const auto calls_at_its_end = [&] {
    return std::shared_ptr<void>(nullptr, [&](void*) {
      ++ended;
      try {
        EXPECT_EQ(values(g(x)), affine_of(values(x), 1, 1));
        context().mark_step();
      } catch (const Error& error) {
        refusal = error.what();
      }
    });
  };
  bool fails = false;
  std::optional<CompiledFunction<Tensor(Tensor)>> f = compile(context(), "f", [&](Tensor y) {
    const Tensor z = affine(y, 2, 0);
    const bool is_captured = current_stream().is_capturing();
    eager_break([held = is_captured ? calls_at_its_end() : nullptr](const StepValues&) {});
    if (fails && is_captured) throw std::runtime_error("while it is captured");
    return affine(z, 1, 0);
  });
  const auto record = [&](std::int64_t count) {
    for (int call = 0; call < 2; ++call)
      (void)(*f)(random_tensor({count}));
  };
  const auto expect_ended = [&](int times, const char* by) {
    EXPECT_EQ(ended, times) << by;
    EXPECT_EQ(refusal, "") << by;
  };
  record(4);
  expect_ended(0, "nothing");
  record(5);
  expect_ended(1, "an eviction");
  (void)context().release_memory();
  expect_ended(2, "release_memory()");
  fails = true;
  record(6);
  expect_ended(3, "a capture that fails");
  fails = false;
  record(7);
  f.reset();
  expect_ended(4, "the end of the function");
}

TEST_P(EagerBreakTest, AContextThatEndsInABreakFinishesTheCall) {
  for (const int last : {0, 1, 2, 3}) {
    for (const bool has_key : {false, true}) {
      std::optional<Context> own(std::in_place, device());
      std::optional<CompiledFunction<Tensor(Tensor)>> f;
      int call = 0;
      std::weak_ptr<Engine> alive = own->share_engine();
      f.emplace(compile(*own, "f", [&](Tensor x) {
        Tensor y = affine(x, 2, 0);
        eager_break([&own, &f, &call, last](const StepValues&) {
          if (call != last) return;
          f.reset();
          own.reset();
        });
        return affine(y, 1, 1);
      }));
      const std::vector<float> x = small_numbers();
      Tensor y;
      for (; call <= last; ++call)
        y = has_key ? f->keyed({{"n", 1}})(tensor({kCount}, x)) : (*f)(tensor({kCount}, x));
      EXPECT_FALSE(own || f);
      EXPECT_TRUE(alive.expired());
      EXPECT_EQ(values(y), times(x, 2, 1)) << last;
    }
  }
}

// A random function with breaks, in random order.
TEST(EagerBreakOrderTest, RandomStepsAreRightInAnyOrder) {
  const unsigned first = std::random_device()();
  std::uint64_t replays = 0;
  for (unsigned seed = first; seed < first + 200; ++seed) {
    const StrictHostDevice host =
        make_strict_host_device({.executor = HostExecutor::kRandom, .seed = seed});
    HostSlot::instance().put(*host.device);
    {
      std::mt19937 random(seed);
      Context context(HostSlot::instance().device());
      const int parts = 1 + static_cast<int>(random() % 5);
      CompiledFunction f = compile(context, "f",
                                   [&](Tensor x, Tensor, Tensor sum) {
                                     Tensor y = affine(x, 1, 0);
                                     for (int part = 0; part < parts; ++part) {
                                       y = affine(y, 2, 1);
                                       eager_break([to = address(y)](const StepValues& values) {
                                         Tensor scratch = empty({kCount}, DType::kFloat32);
                                         axpy(0, to, scratch.data<float>());
                                         axpy(values.get<Factor>(1).value, to, to);
                                       });
                                     }
                                     axpy(1, y.data<float>(), sum.data<float>());
                                     return y;
                                   },
                                   {.inputs = {{}, {}, {.is_mutated = true}}});
      std::vector<std::pair<Tensor, float>> held;
      Tensor sum = from_host<float>({kCount}, std::vector<float>(kCount, 0), context.device());
      float expected_sum = 0;
      for (int call = 0; call < 10; ++call) {
        float expected = static_cast<float>(random() % 8);
        const Factor factor{static_cast<float>(random() % 3)};
        const Tensor x =
            from_host<float>({kCount}, std::vector<float>(kCount, expected), context.device());
        held.emplace_back(f(x, step_block(factor), sum), 0);
        for (int part = 0; part < parts; ++part)
          expected = (2 * expected + 1) * (1 + factor.value);
        held.back().second = expected;
        expected_sum += expected;
        if (held.size() > 2) held.erase(held.begin());
      }
      for (const auto& [y, value] : held)
        EXPECT_EQ(y.to_vector<float>(), std::vector<float>(kCount, value)) << "seed " << seed;
      context.synchronize();
      EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(kCount, expected_sum))
          << "seed " << seed;
      replays += f.stats().replays;
    }
    EXPECT_THAT(host.memory->take_findings(), ::testing::IsEmpty()) << "seed " << seed;
    if (HasFailure()) break;
  }
  EXPECT_GT(replays, 0u);
  HostSlot::instance().put(host_device_api());
}

}  // namespace
}  // namespace cgtree::testing
