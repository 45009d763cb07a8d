// Programs in parts: graphed functions with eager gaps between them, and switches by scope.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "extensions/watch/monitor.h"
#include "interop/tensor/copy.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class AcceptancePartsTest : public TreeTest {
 protected:
  CompiledFunction<Tensor(Tensor)> times(std::string name, float scale,
                                         CompileOptions options = {}) {
    return compile(
        context(), std::move(name), [=](Tensor x) { return affine(x, scale, 1); },
        std::move(options));
  }
};
CGTREE_ON_ALL_DEVICES(AcceptancePartsTest);

// Row 13 index_put_boolean_fallback_partitions: an operation that cannot be captured runs in an
// eager gap (K = 0), or keeps the whole function from being graphed (K > 0); the values are right
// in both cases.
// Acceptance: trees 13.
TEST_P(AcceptancePartsTest, AnUnsafeOperationIsAGapOrASkip) {
  const auto unsafe = [](const Tensor& x) {
    current_stream().synchronize();
    return affine(x, 3, 0);
  };
  CompiledFunction whole =
      compile(context(), "whole", [&](Tensor x) { return affine(unsafe(affine(x, 2, 1)), 5, 1); });
  CompiledFunction before = times("before", 2), after = times("after", 5);

  for (int step = 0; step < 4; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(4);
    const std::vector<float> expected = affine_of(affine_of(affine_of(x, 2, 1), 3, 0), 5, 1);
    const Tensor made = before(tensor({4}, x));
    EXPECT_EQ(values(after(context().eager([&] { return unsafe(made); }))), expected);
    EXPECT_EQ(values(whole(tensor({4}, x))), expected);
  }

  EXPECT_EQ(before.stats().skipped() + after.stats().skipped(), 0u);
  EXPECT_EQ(before.stats().replays + after.stats().replays, 4u);
  EXPECT_EQ(whole.stats().skips[static_cast<int>(SkipReason::kCaptureFailed)], 3u);
}

// Row 15 graph_partition_custom_op_mutation_with_cudagraph_unsafe.
// Acceptance: trees 15.
TEST_P(AcceptancePartsTest, AnOperationThatMutatesAndAnUnsafeOneAreRightForFiveRuns) {
  const Tensor state = tensor({3}, std::vector<float>{0, 10, 20});
  CompiledFunction mutate = compile(context(), "mutate",
                                    [](Tensor s, Tensor x) {
                                      update(s, 1, 1);
                                      return add(s, x);
                                    },
                                    {.inputs = {{.is_static = true, .is_mutated = true}}});
  CompiledFunction last = times("last", 4);

  for (int run = 1; run <= 5; ++run) {
    context().mark_step();
    const std::vector<float> x = random_floats(3);
    const Tensor made = mutate(state, tensor({3}, x));
    const Tensor between = context().eager([&] {
      current_stream().synchronize();
      return affine(made, 2, 0);
    });
    const std::vector<float> y = values(last(between));
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(y[i], 4 * (2 * ((10.0f * i + run) + x[i])) + 1);
  }

  EXPECT_EQ(mutate.stats().replays, 3u);
  EXPECT_EQ(last.stats().replays, 3u);
}

// Row 128 graph_partition_reduce_overhead_mode_effectiveness: a context that is switched off
// records nothing.
// Acceptance: trees 128.
TEST_P(AcceptancePartsTest, AContextThatIsSwitchedOffRecordsNothing) {
  CompiledFunction f = times("f", 2, {.enabled = false});
  for (int call = 0; call < 4; ++call)
    (void)f(random_tensor({4}));

  const auto snapshot = nlohmann::json::parse(snapshot_json(context()));
  EXPECT_TRUE(snapshot["nodes"].empty());
  EXPECT_EQ(snapshot["pools"]["output"]["reserved_bytes"]["current"], 0);
  EXPECT_EQ(snapshot["pools"]["scratch"]["reserved_bytes"]["current"], 0);
}

// Row 137 graph_partition_multiple_devices_msg: host memory is read in a gap (K = 0, N = 1); an
// input on another device is skipped (K = 1).
// Acceptance: trees 137.
TEST_P(AcceptancePartsTest, HostMemoryIsReadInAGapAndAnotherDeviceIsSkipped) {
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel level, const std::string& line) {
    if (level >= LogLevel::kWarn) warnings.push_back(line);
  });
  CompiledFunction f = times("f", 2);
  for (int step = 0; step < 4; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(4);
    const Tensor on_host = from_host<float>({4}, x, Device::host());
    const Tensor moved = context().eager([&] {
      const Tensor on_device = empty({4}, DType::kFloat32);
      copy(on_device, on_host);
      return on_device;
    });
    EXPECT_EQ(values(f(moved)), affine_of(x, 2, 1));
  }
  EXPECT_EQ(f.stats().skipped(), 0u);
  EXPECT_EQ(recording_count(), 1u);

  CompiledFunction g = compile(context(), "g", [](Tensor x, Tensor) { return affine(x, 2, 0); });
  const Tensor elsewhere = from_host<float>({1}, std::vector<float>{1}, Device::host(1));
  for (int call = 0; call < 3; ++call)
    (void)g(random_tensor({4}), elsewhere);
  set_log_sink(nullptr);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("reason=other_device"));
  EXPECT_EQ(recording_count(), 1u);
}

// Row 138 graph_partition_dynamic_shapes: three shapes, three recordings.
// Acceptance: trees 138.
TEST_P(AcceptancePartsTest, ThreeShapesAreThreeRecordings) {
  CompiledFunction f = times("f", 2);
  for (int round = 0; round < 4; ++round) {
    for (const std::int64_t size : {2, 3, 4}) {
      const std::vector<float> x = random_floats(size);
      EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, 2, 1));
    }
  }
  EXPECT_EQ(recording_count(), 3u);
  EXPECT_EQ(f.stats().replays, 6u);
}

// Row 139 graph_partition_cpu_op_and_dynamic_shapes: two parts, two shapes, four recordings.
// Acceptance: trees 139.
TEST_P(AcceptancePartsTest, TwoPartsAroundAHostOperationHaveARecordingPerShape) {
  CompiledFunction before = times("before", 2), after = times("after", 3);
  for (int round = 0; round < 4; ++round) {
    for (const std::int64_t size : {2, 3}) {
      context().mark_step();
      const std::vector<float> x = random_floats(size);
      const Tensor made = before(tensor({size}, x));
      const Tensor back = context().eager([&] {
        const std::vector<float> on_host = affine_of(values(made), 1, 7);  // the host operation
        return tensor({size}, on_host);
      });
      EXPECT_EQ(values(after(back)), affine_of(affine_of(affine_of(x, 2, 1), 1, 7), 3, 1));
    }
  }
  EXPECT_EQ(recording_count(), 4u);
  EXPECT_EQ(before.stats().skipped() + after.stats().skipped(), 0u);
}

// Rows 141 skip_cudagraph_unsafe_custom_op (two unsafe operations, three recordings) and 146
// graph_partition_cpu_tensor_symints (a size that only the host sees makes no new recording).
// Acceptance: trees 141, 146.
TEST_P(AcceptancePartsTest, TwoGapsMakeThreeRecordingsWhateverTheSizesInThem) {
  CompiledFunction one = times("one", 2), two = times("two", 3), three = times("three", 4);
  for (std::int64_t step = 1; step <= 6; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(4);
    const Tensor host = from_host<float>({step}, std::vector<float>(step, 1), Device::host());
    const auto unsafe = [&](const Tensor& made) {
      return context().eager([&] {
        current_stream().synchronize();
        return affine(made, 1, static_cast<float>(host.elements()));
      });
    };
    const float n = static_cast<float>(step);
    const Tensor y = three(unsafe(two(unsafe(one(tensor({4}, x))))));
    std::vector<float> expected = affine_of(affine_of(x, 2, 1), 1, n);
    expected = affine_of(affine_of(affine_of(expected, 3, 1), 1, n), 4, 1);
    EXPECT_EQ(values(y), expected);
  }
  EXPECT_EQ(recording_count(), 3u);
  EXPECT_EQ(one.stats().replays + two.stats().replays + three.stats().replays, 12u);
}

// Rows 97 to 105 cudagraph_annotation_disable (0), _disable_fwd_bwd (0), _disable_bwd_only (1),
// _graph_break_selective (1), _multiple_functions (0), _deeply_nested (0), _context_manager (2),
// _module_forward (0): recordings of functions that are called as a pair, twice each.
// Acceptance: trees 97.
TEST_P(AcceptancePartsTest, SwitchesOffCountForWhatIsCalledInTheirScope) {
  const auto recordings = [&](bool forward_off, bool backward_off) {
    make_context({});
    CompiledFunction forward = times("forward", 2), backward = times("backward", 3);
    for (int step = 0; step < 3; ++step) {
      context().mark_step();
      std::optional<NoGraph> off;
      if (forward_off) off.emplace();
      const Tensor y = forward(random_tensor({3}));
      off.reset();
      if (backward_off) off.emplace();
      (void)backward(y);
    }
    return recording_count();
  };
  EXPECT_EQ(recordings(true, true), 0u);
  EXPECT_EQ(recordings(false, true), 1u);
  EXPECT_EQ(recordings(false, false), 2u);

  make_context({});
  CompiledFunction off = times("off", 2, {.enabled = false}), on = times("on", 2);
  const auto deep = [&] {
    const NoGraph no_graph;
    return [&] { return on(random_tensor({3})); }();
  };
  for (int call = 0; call < 3; ++call) {
    (void)off(random_tensor({3}));
    (void)deep();
  }
  EXPECT_EQ(recording_count(), 0u);
  for (int call = 0; call < 3; ++call) {
    (void)off(random_tensor({3}));
    (void)on(random_tensor({3}));
  }
  EXPECT_EQ(recording_count(), 1u);
}

// Rows 106 to 109 cudagraph_annotation_enable (1), _enable_fwd_bwd (2), _enable_fwd_only (2 there,
// where a backward follows its forward; here each function follows its own scope: 1),
// _enable_context_manager (2).
// Acceptance: trees 106.
TEST_P(AcceptancePartsTest, SwitchesOnCountForWhatIsCalledInTheirScope) {
  const auto recordings = [&](bool forward_on, bool backward_on) {
    make_context({});
    CompiledFunction forward = times("forward", 2, {.enabled = false});
    CompiledFunction backward = times("backward", 3, {.enabled = false});
    for (int step = 0; step < 3; ++step) {
      context().mark_step();
      std::optional<ForceGraph> on;
      if (forward_on) on.emplace();
      const Tensor y = forward(random_tensor({3}));
      on.reset();
      if (backward_on) on.emplace();
      (void)backward(y);
    }
    return recording_count();
  };
  EXPECT_EQ(recordings(false, false), 0u);
  EXPECT_EQ(recordings(true, false), 1u);
  EXPECT_EQ(recordings(true, true), 2u);
}

}  // namespace
}  // namespace cgtree::testing
