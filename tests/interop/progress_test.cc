// Events with times, and kernels inserted between nodes of a graph: the same results on every
// device.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "interop/device/device_api.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

class ProgressTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    ASSERT_TRUE(GetParam().api->supports(0, DeviceAttribute::kSupportsProgress));
  }

  static GraphAPI& graphs() { return *GetParam().api->graphs(); }
  // Inserts *x = 0.
  static Code insert_zero(GraphHandle graph, std::span<const NodeHandle> after,
                          std::span<const NodeHandle> before, float* x, NodeHandle* node) {
    const float value = 0;
    const std::int64_t count = 1;
    return graphs().insert_kernel(graph, after, before, fill_kernel(), dims_for(1),
                                  arguments_of(x, value, count), node);
  }
  static EventHandle timed_event() {
    EventHandle event = EventHandle::kNull;
    check(graphs().create_timed_event(&event), "create an event with a time");
    return event;
  }
};

TEST_P(ProgressTest, TheTimeBetweenTwoEventsOfAStreamIsThereWhenBothHaveHappened) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  const EventHandle begin = timed_event();
  const EventHandle end = timed_event();
  check(bench.graphs.record_event(begin, stream), "record");
  for (int i = 0; i < 10; ++i)
    check(bench.add_one(stream, x), "launch");
  check(bench.graphs.record_event(end, stream), "record");
  check(bench.graphs.synchronize_event(end), "wait");

  std::chrono::nanoseconds there{-1};
  EXPECT_EQ(graphs().elapsed(begin, end, &there), Code::kSuccess);
  EXPECT_GE(there.count(), 0);
  std::chrono::nanoseconds none{-1};
  EXPECT_EQ(graphs().elapsed(begin, begin, &none), Code::kSuccess);
  EXPECT_EQ(none.count(), 0);
  EXPECT_EQ(bench.read(x), 10);
  for (const EventHandle event : {begin, end})
    check(bench.graphs.destroy_event(event), "destroy an event");
}

TEST_P(ProgressTest, AnEventWithATimeOrdersStreamsAsOthersDo) {
  DeviceBench bench(GetParam());
  const StreamHandle first = bench.stream();
  const StreamHandle second = bench.stream();
  float* const x = bench.floats(1);
  const EventHandle event = timed_event();
  check(bench.fill(first, x, 5), "launch");
  check(bench.graphs.record_event(event, first), "record");
  check(bench.graphs.wait_event(second, event), "wait");
  check(bench.add_one(second, x), "launch");
  EXPECT_EQ(bench.read(x), 6);
  check(bench.graphs.destroy_event(event), "destroy an event");
}

TEST_P(ProgressTest, ATimeIsRefusedOfAnEventThatHasNoneOrWasNeverRecorded) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  const EventHandle timed = timed_event();
  const EventHandle never = timed_event();
  const EventHandle plain = bench.event();
  check(bench.graphs.record_event(timed, stream), "record");
  check(bench.graphs.record_event(plain, stream), "record");
  check(bench.api.synchronize_stream(stream), "wait");
  std::chrono::nanoseconds time{-1};

  EXPECT_EQ(graphs().elapsed(timed, plain, &time), Code::kInvalidResourceHandle);
  EXPECT_EQ(graphs().elapsed(plain, timed, &time), Code::kInvalidResourceHandle);
  EXPECT_EQ(graphs().elapsed(timed, never, &time), Code::kInvalidResourceHandle);
  EXPECT_EQ(time.count(), -1);
  (void)bench.graphs.take_last_error();
  for (const EventHandle event : {timed, never})
    check(bench.graphs.destroy_event(event), "destroy an event");
}

// x = 1; [x = 0]; y = x: the copy reads the value of the inserted kernel.
TEST_P(ProgressTest, AKernelRunsBetweenTheNodesThatItIsInsertedBetween) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  float* const y = bench.floats(1);
  check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
  check(bench.fill(stream, x, 1), "capture");
  check(bench.api.copy(stream, y, x, sizeof(float)), "capture");
  const GraphHandle graph = bench.end(stream);
  std::vector<NodeHandle> nodes;
  check(bench.graphs.graph_nodes(graph, &nodes), "list nodes");
  ASSERT_EQ(nodes.size(), 2u);
  const ExecHandle before = bench.instantiate(graph);

  NodeHandle made = NodeHandle::kNull;
  ASSERT_EQ(insert_zero(graph, {&nodes[0], 1}, {&nodes[1], 1}, x, &made), Code::kSuccess);

  NodeType type = NodeType::kOther;
  check(bench.graphs.node_type(made, &type), "ask for a type");
  EXPECT_EQ(type, NodeType::kKernel);
  const ExecHandle after = bench.instantiate(graph);
  check(bench.graphs.launch(after, stream), "launch");
  EXPECT_EQ(bench.read(y), 0);
  check(bench.graphs.launch(before, stream), "launch");
  EXPECT_EQ(bench.read(y), 1);
}

TEST_P(ProgressTest, AKernelInFrontOfAllAndOneBehindAll) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1, 3);
  float* const y = bench.floats(1, 4);
  check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
  check(bench.add_one(stream, x), "capture");
  check(bench.api.copy(stream, y, x, sizeof(float)), "capture");
  const GraphHandle graph = bench.end(stream);
  std::vector<NodeHandle> nodes;
  check(bench.graphs.graph_nodes(graph, &nodes), "list nodes");

  NodeHandle first = NodeHandle::kNull;
  NodeHandle last = NodeHandle::kNull;
  ASSERT_EQ(insert_zero(graph, {}, {&nodes[0], 1}, x, &first), Code::kSuccess);
  ASSERT_EQ(insert_zero(graph, {&nodes[1], 1}, {}, x, &last), Code::kSuccess);

  check(bench.graphs.launch(bench.instantiate(graph), stream), "launch");
  EXPECT_EQ(bench.read(y), 1);  // 0 + 1
  EXPECT_EQ(bench.read(x), 0);
}

// The kernel writes pinned memory, which the host reads while the work goes on.
TEST_P(ProgressTest, AMarkInPinnedMemoryIsSeenByTheHost) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  float* const mark = bench.pinned_floats(1, 9);
  check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
  check(bench.add_one(stream, x), "capture");
  const GraphHandle graph = bench.end(stream);
  std::vector<NodeHandle> nodes;
  check(bench.graphs.graph_nodes(graph, &nodes), "list nodes");
  NodeHandle made = NodeHandle::kNull;
  ASSERT_EQ(insert_zero(graph, nodes, {}, mark, &made), Code::kSuccess);
  check(bench.graphs.launch(bench.instantiate(graph), stream), "launch");
  check(bench.api.synchronize_stream(stream), "wait");
  EXPECT_EQ(*mark, 0);
}

TEST_P(ProgressTest, NodesThatAnInsertedKernelMovedCanStillBePatched) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  float* const y = bench.floats(1);
  float* const z = bench.floats(1);
  check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
  check(bench.fill(stream, x, 1), "capture");
  const GraphHandle graph = bench.end(stream);
  std::vector<NodeHandle> nodes;
  check(bench.graphs.graph_nodes(graph, &nodes), "list nodes");
  const ExecHandle before = bench.instantiate(graph);
  NodeHandle made = NodeHandle::kNull;
  ASSERT_EQ(insert_zero(graph, nodes, {}, y, &made), Code::kSuccess);
  const ExecHandle after = bench.instantiate(graph);

  const std::int64_t count = 1;
  for (const auto& [exec, value] : {std::pair{before, 2.0F}, std::pair{after, 3.0F}}) {
    check(bench.graphs.set_kernel_node(exec, nodes[0], fill_kernel(), dims_for(1),
                                       arguments_of(z, value, count)),
          "patch");
    check(bench.graphs.launch(exec, stream), "launch");
    EXPECT_EQ(bench.read(z), value);
  }
  EXPECT_EQ(bench.read(x), 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, ProgressTest, ::testing::ValuesIn(executors_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree::testing
