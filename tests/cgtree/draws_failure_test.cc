// Random numbers and failure: a call that throws draws nothing, and a step that cannot be replayed
// is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "cgtree/steps.h"
#include "cgtree/values/eager_break.h"
#include "interop/random/random.h"
#include "tests/support/failing_device.h"
#include "tests/support/philox_oracle.h"
#include "tests/support/random_steps.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class DrawsFailureTest : public TreeTest {
 protected:
  template <typename Call>
  static std::string message_of(const Call& call) {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return std::string(error.message());
    }
    return "nothing was thrown";
  }
};
CGTREE_ON_ALL_DEVICES(DrawsFailureTest);

// Row 4.3 graph_manual_seed_mismatch_raises.
// Acceptance: graphs graph_manual_seed_mismatch_raises.
TEST_P(DrawsFailureTest, GraphManualSeedMismatchRaisesAndDrawsNothing) {
  const Generator generator(seed_);
  bool reseed = false;
  const CompiledFunction f = compile(context(), "f", [&] {
    Tensor drawn = uniform({4}, generator);
    if (reseed) generator.set_seed(5);
    return drawn;
  });
  PhiloxOracle oracle(seed_);
  EXPECT_EQ(values(f()), oracle.uniform(4));
  reseed = true;

  EXPECT_THAT(message_of([&] { (void)f(); }), HasSubstr("reseeded inside a step function"));

  EXPECT_EQ(generator.state(), (GeneratorState{seed_, 1, nullptr}));
  reseed = false;
  EXPECT_EQ(values(f()), oracle.uniform(4));
  EXPECT_EQ(f.stats().recordings, 1u);
}

TEST_P(DrawsFailureTest, AStateFromOutsideIsRefusedWhileRecording) {
  const Generator generator(seed_);
  const Generator other(seed_);
  const GeneratorState outside = generator.state();
  const CompiledFunction f = compile(context(), "f", [&] {
    Tensor drawn = uniform({4}, generator);
    generator.set_state(outside);
    return drawn;
  });
  const CompiledFunction g = compile(context(), "g", [&] {
    Tensor drawn = uniform({4}, generator);
    generator.set_state(other.state());
    return drawn;
  });
  for (const auto* function : {&f, &g}) {
    (void)(*function)();
    EXPECT_THAT(message_of([&] { (void)(*function)(); }), HasSubstr("state from outside"));
  }
}

TEST_P(DrawsFailureTest, AStateTakenWhileRecordingIsRefusedAfterwards) {
  const Generator generator(seed_);
  GeneratorState taken;
  const CompiledFunction f = compile(context(), "f", [&] {
    taken = generator.state();
    return uniform({4}, generator);
  });
  (void)f();
  EXPECT_NO_THROW(generator.set_state(taken));
  (void)f();
  EXPECT_THAT(message_of([&] { generator.set_state(taken); }),
              HasSubstr("taken while a step function was recorded"));
}

TEST_P(DrawsFailureTest, AStepThatThrowsDrawsNothingInAnyPhase) {
  const Generator generator(seed_);
  bool fail = false;
  for (const bool enabled : {true, false}) {
    const CompiledFunction f = compile(context(), "f",
                                       [&] {
                                         Tensor drawn = uniform({4}, generator);
                                         (void)uniform({4}, generator);
                                         if (fail) generator.set_seed(99);
                                         if (fail) throw std::runtime_error("the user's own");
                                         return drawn;
                                       },
                                       {.enabled = enabled});
    for (int phase = 0; phase < 2; ++phase) {
      const GeneratorState before = generator.state();
      fail = true;
      EXPECT_ANY_THROW((void)f());
      EXPECT_EQ(generator.state(), before);
      fail = false;
      (void)f();
      EXPECT_EQ(generator.state().offset, before.offset + 2);
    }
  }
}

TEST_P(DrawsFailureTest, AnExceptionOfBeforeFirstLaunchDrawsNothing) {
  bool fail = false;
  make_context({.before_first_launch = [&](const NewRecording&) {
    if (fail) throw std::runtime_error("no peer memory");
  }});
  const Generator generator(seed_);
  PhiloxOracle oracle(seed_);
  const CompiledFunction f = compile(context(), "f", [&] { return uniform({4}, generator); });
  EXPECT_EQ(values(f()), oracle.uniform(4));
  fail = true;
  for (int call = 0; call < 3; ++call) {
    EXPECT_THROW((void)f(), std::runtime_error);
    EXPECT_EQ(generator.state().offset, oracle.offset());
  }
  fail = false;
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(f()), oracle.uniform(4));
  EXPECT_EQ(f.stats().recordings, 1u);
}

TEST_P(DrawsFailureTest, ABreakThatThrowsDrawsNothingInAnyPhase) {
  const Generator generator(seed_);
  PhiloxOracle oracle(seed_);
  bool fail = false;
  const auto attend = [&fail](const StepValues&) {
    if (fail) throw std::runtime_error("the break's own");
  };
  const CompiledFunction f = compile(context(), "f", [&] {
    Tensor drawn = uniform({4}, generator);
    eager_break(attend);
    return affine(drawn, 1, 0);
  });
  for (int phase = 0; phase < 4; ++phase) {  // warm-up, recording, replays
    fail = true;
    EXPECT_THROW((void)f(), std::runtime_error);
    EXPECT_EQ(generator.state().offset, oracle.offset()) << phase;
    fail = false;
    EXPECT_EQ(values(f()), oracle.uniform(4));
  }
  EXPECT_EQ(f.stats().replays, 2u);
}

TEST_P(DrawsFailureTest, ABreakOfAnEnginesStepThatThrowsDrawsNothingInAnyPhase) {
  const Generator generator(seed_);
  bool fail = false;
  Steps steps(context(), "steps");
  const Tensor x = random_tensor({4});
  const Binding bindings[] = {{x.data<float>(), x.bytes()}};
  const auto step = [&] {
    for (Step step = steps.begin(Key{}, bindings); step.must_run();) {
      (void)uniform({4}, generator);
      eager_break([&fail](const StepValues&) {
        if (fail) throw std::runtime_error("the break's own");
      });
      update(x, 1, 1);
      step.end();
    }
  };
  for (std::uint64_t phase = 0; phase < 4; ++phase) {
    fail = true;
    EXPECT_THROW(step(), std::runtime_error);
    EXPECT_EQ(generator.state().offset, phase);
    fail = false;
    step();
    EXPECT_EQ(generator.state().offset, phase + 1);
  }
  EXPECT_EQ(steps.stats().replays, 2u);
}

TEST_P(DrawsFailureTest, DrawsOfOthersAreNotUndone) {
  const Generator generator(seed_);
  const CompiledFunction f = compile(context(), "f", [&]() -> Tensor {
    (void)uniform({4}, generator);
    std::thread([&] { (void)generator.reserve(10); }).join();
    (void)uniform({8}, generator);
    throw std::runtime_error("the user's own");
  });
  EXPECT_THROW((void)f(), std::runtime_error);
  EXPECT_EQ(generator.state().offset, 1u + 10u);
}

TEST_P(DrawsFailureTest, AFailedCaptureDrawsOnceAsTheEagerCallItBecomes) {
  const Generator generator(seed_);
  PhiloxOracle oracle(seed_);
  const CompiledFunction f = compile(context(), "f", [&] {
    Tensor drawn = uniform({4}, generator);
    current_stream().synchronize();
    return drawn;
  });
  for (int call = 0; call < 4; ++call)
    EXPECT_EQ(values(f()), oracle.uniform(4));
  EXPECT_EQ(f.stats().recordings, 0u);
  EXPECT_EQ(generator.state().offset, oracle.offset());
}

// A GPU cannot be made to refuse a launch.
class RefusedLaunchTest : public DrawsFailureTest {};
INSTANTIATE_TEST_SUITE_P(HostOnly, RefusedLaunchTest,
                         ::testing::Values(devices_under_test().front()), device_name);

TEST_P(RefusedLaunchTest, ALaunchThatIsRefusedDrawsNothing) {
  const Generator generator(seed_);
  PhiloxOracle oracle(seed_);
  bool refused = false;
  const CompiledFunction f = compile(context(), "f", [&] {
    launch_refusable(&refused);
    return uniform({4}, generator);
  });
  EXPECT_EQ(values(f()), oracle.uniform(4));
  for (int phase = 0; phase < 2; ++phase) {  // the first launch, then a replay
    refused = true;
    EXPECT_THROW((void)f(), DeviceError);
    EXPECT_EQ(generator.state().offset, oracle.offset());
    refused = false;
    EXPECT_EQ(values(f()), oracle.uniform(4));
  }
}

TEST_P(DrawsFailureTest, OutOfMemoryAtAnyRequestDrawsNothing) {
  constexpr std::int64_t kCount = 3 << 20;  // each tensor needs a separate segment
  PhiloxOracle oracle(seed_);
  const std::vector<float> expected[] = {oracle.uniform(kCount), oracle.uniform(kCount),
                                         oracle.uniform(kCount)};
  for (int k = 0;; ++k) {
    make_context({});
    segments_->refuse_at = k;
    const Generator generator(seed_);
    const CompiledFunction f =
        compile(context(), "f", [=](Tensor x) { return add(x, uniform({kCount}, generator)); });
    const Tensor zeros = tensor({kCount}, std::vector<float>(kCount, 0));
    bool refused = false;
    for (int call = 0; call < 3; ++call) {
      const std::uint64_t before = generator.state().offset;
      try {
        EXPECT_TRUE(values(f(zeros)) == expected[call]);
      } catch (const OutOfMemory&) {
        refused = true;
        EXPECT_EQ(generator.state().offset, before);
        EXPECT_TRUE(values(f(zeros)) == expected[call]);
      }
    }
    if (!refused) break;
  }
}

// A recording that cannot be launched must not prevent a new one.
TEST_P(RefusedLaunchTest, ARecordingThatIsRefusedTwiceIsRecordedAnew) {
  bool refused = false;
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    launch_refusable(&refused);
    return affine(x, 2, 0);
  });
  const std::vector<float> x = random_floats(4);
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(f(tensor({4}, x))), affine_of(x, 2, 0));
  refused = true;
  EXPECT_THROW((void)f(tensor({4}, x)), DeviceError);
  EXPECT_EQ(recording_count(), 1u);
  EXPECT_THROW((void)f(tensor({4}, x)), DeviceError);
  EXPECT_EQ(recording_count(), 0u);
  refused = false;
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(f(tensor({4}, x))), affine_of(x, 2, 0));
  EXPECT_EQ(f.stats().recordings, 2u);
  EXPECT_EQ(stats().live_outputs, 0u);
}

TEST(RefusedPatchTest, APatchThatIsRefusedDrawsNothing) {
  FailingDevice& failing = FailingDevice::instance();
  Context context(failing.device());
  const Generator generator(7);
  PhiloxOracle oracle(7);
  const CompiledFunction f =
      compile(context, "f", [&](Tensor x) { return add(x, uniform({4}, generator)); });
  const Tensor zeros = from_host<float>({4}, std::vector<float>(4, 0), failing.device());
  const auto expect_draws = [&] { EXPECT_EQ(f(zeros).to_vector<float>(), oracle.uniform(4)); };
  for (int call = 0; call < 3; ++call)
    expect_draws();
  for (int call = 0; call < 3; ++call) {
    failing.arm({.at = 0, .function = "set_kernel_node"});
    EXPECT_THROW((void)f(zeros), DeviceError);
    EXPECT_EQ(failing.failed_function(), "set_kernel_node");
    failing.disarm();
    EXPECT_EQ(generator.state().offset, oracle.offset());
    expect_draws();
  }
  EXPECT_EQ(f.stats().recordings, 1u);
}

TEST(RefusedPatchTest, AnInputThatHasMovedIsSeenByTheCallAfterTheRefusedOne) {
  FailingDevice& failing = FailingDevice::instance();
  Context context(failing.device());
  const CompiledFunction f = compile(context, "f", [](Tensor x) { return affine(x, 2, 0); });
  const auto filled = [&](float value) {
    return from_host<float>({4}, std::vector<float>(4, value), failing.device());
  };
  const Tensor before = filled(1);
  const Tensor moved = filled(2);
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(f(before).to_vector<float>(), std::vector<float>(4, 2));

  failing.arm({.at = 0, .function = "set_kernel_node"});
  EXPECT_THROW((void)f(moved), DeviceError);
  EXPECT_EQ(failing.failed_function(), "set_kernel_node");
  failing.disarm();

  EXPECT_EQ(f(moved).to_vector<float>(), std::vector<float>(4, 4));
  EXPECT_EQ(f.stats().recordings, 1u);
}

}  // namespace
}  // namespace cgtree::testing
