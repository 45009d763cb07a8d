// The trace of calls on every device, and the driver calls of a tree's steady loop.
#include "tests/support/call_trace.h"

#include <gtest/gtest.h>

#include <thread>

#include "cgtree/cgtree.h"
#include "interop/device/code.h"
#include "simulator/host_device.h"
#include "tests/support/device_bench.h"
#include "tests/support/host_slot.h"
#include "tests/support/steps.h"

namespace cgtree::testing {
namespace {

class CallTraceTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }
};

TEST_P(CallTraceTest, TellsThreadFunctionStreamAndCode) {
  CallTrace trace(*GetParam().api);
  DeviceBench bench({"traced", GetParam().device, &trace.device(), ""});
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  trace.clear();
  check(bench.add_one(stream, x), "launch");
  float on_stack = 0;
  std::thread([&] {
    EXPECT_EQ(bench.api.free_data_space(0, &on_stack), Code::kInvalidValue);
  }).join();

  const std::vector<TracedCall> calls = trace.calls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_STREQ(calls[0].function, "launch_kernel");
  EXPECT_EQ(calls[0].stream, stream);
  EXPECT_EQ(calls[0].code, Code::kSuccess);
  EXPECT_EQ(calls[0].thread, std::this_thread::get_id());
  EXPECT_STREQ(calls[1].function, "free_data_space");
  EXPECT_EQ(calls[1].code, Code::kInvalidValue);
  EXPECT_NE(calls[1].thread, std::this_thread::get_id());
}

TEST_P(CallTraceTest, TellsWhetherMemoryIsTakenDuringACapture) {
  CallTrace trace(*GetParam().api);
  DeviceBench bench({"traced", GetParam().device, &trace.device(), ""});
  const StreamHandle stream = bench.stream();
  (void)bench.floats(1);
  check(bench.graphs.begin_capture(stream, CaptureMode::kRelaxed), "begin");
  EXPECT_TRUE(trace.memory_calls_under_capture().empty());
  (void)bench.pinned_floats(1, 0);
  (void)bench.end(stream);
  (void)bench.pinned_floats(1, 0);

  const std::vector<TracedCall> calls = trace.memory_calls_under_capture();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_STREQ(calls[0].function, "alloc_pinned");
  EXPECT_EQ(trace.count("alloc_pinned"), 2u);
}

INSTANTIATE_TEST_SUITE_P(Devices, CallTraceTest, ::testing::ValuesIn(executors_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST(TreeTraceTest, AReplayLaunchesAndNeitherWaitsNorTakesMemory) {
  CallTrace trace(host_device_api());
  HostSlot::instance().put(trace.device());
  {
    Context context(HostSlot::instance().device());
    auto f = compile(context, "f", [](Tensor x) { return affine(x, 2, 1); });
    const std::vector<float> values = {1, 2, 3};
    const Tensor x = from_host<float>({3}, values, HostSlot::instance().device());
    for (int i = 0; i < 4; ++i) {
      context.mark_step();
      (void)f(x);
    }
    trace.clear();
    context.mark_step();
    const Tensor y = f(x);

    EXPECT_EQ(trace.count("launch"), 1u);
    EXPECT_TRUE(trace.calls_of(CallKind::kSynchronize).empty());
    EXPECT_TRUE(trace.calls_of(CallKind::kAllocate).empty());
    EXPECT_TRUE(trace.calls_of(CallKind::kFree).empty());
    EXPECT_TRUE(trace.calls_of(CallKind::kCapture).empty());
  }
  for (const TracedCall& call : trace.memory_calls_under_capture())
    ADD_FAILURE() << to_string(call);
  HostSlot::instance().put(host_device_api());
}

}  // namespace
}  // namespace cgtree::testing
