// Captures with several calls: the same results on every device.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "interop/device/graph_api.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

class CaptureConformanceTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }
};

void begin(DeviceBench& bench, StreamHandle stream, CaptureMode mode = CaptureMode::kThreadLocal) {
  check(bench.graphs.begin_capture(stream, mode), "begin a capture");
}

// Ends a capture and destroys the graph.
Code end(DeviceBench& bench, StreamHandle stream) {
  GraphHandle graph = GraphHandle::kNull;
  const Code code = bench.graphs.end_capture(stream, &graph);
  EXPECT_EQ(graph != GraphHandle::kNull, ok(code));
  return ok(code) ? bench.graphs.destroy_graph(graph) : code;
}

void invalidate(DeviceBench& bench, StreamHandle stream) {
  EXPECT_EQ(bench.api.synchronize_stream(stream), Code::kStreamCaptureUnsupported);
}

TEST_P(CaptureConformanceTest, TakesWorkOfAForkThatIsJoined) {
  DeviceBench bench(GetParam());
  const StreamHandle origin = bench.stream();
  const StreamHandle fork = bench.stream();
  float* const x = bench.floats(1);
  begin(bench, origin);
  bench.order(origin, fork);
  check(bench.add_one(fork, x), "capture");
  bench.order(fork, origin);

  EXPECT_EQ(bench.node_count(bench.end(origin)), 1u);
  EXPECT_EQ(bench.info(fork).status, CaptureStatus::kNone);
}

TEST_P(CaptureConformanceTest, JoinsThroughAThirdStream) {
  DeviceBench bench(GetParam());
  const StreamHandle origin = bench.stream();
  const StreamHandle fork = bench.stream();
  const StreamHandle third = bench.stream();
  float* const x = bench.floats(1);
  begin(bench, origin);
  bench.order(origin, fork);
  check(bench.add_one(fork, x), "capture");
  bench.order(fork, third);
  bench.order(third, origin);

  EXPECT_EQ(end(bench, origin), Code::kSuccess);
}

TEST_P(CaptureConformanceTest, NeedsNoJoinOfAForkWithoutWork) {
  DeviceBench bench(GetParam());
  const StreamHandle origin = bench.stream();
  const StreamHandle fork = bench.stream();
  float* const x = bench.floats(1);
  begin(bench, origin);
  check(bench.add_one(origin, x), "capture");
  bench.order(origin, fork);

  EXPECT_EQ(end(bench, origin), Code::kSuccess);
}

// Nodes keep their handles in the final graph, and so does the graph.
TEST_P(CaptureConformanceTest, ListsTheNodesOfItsGraphWhileItIsOpen) {
  DeviceBench bench(GetParam());
  const StreamHandle origin = bench.stream();
  const StreamHandle fork = bench.stream();
  float* const x = bench.floats(1);
  EXPECT_EQ(bench.info(origin).graph, GraphHandle::kNull);
  begin(bench, origin);
  std::vector<NodeHandle> seen;
  check(bench.graphs.graph_nodes(bench.info(origin).graph, &seen), "list nodes");
  EXPECT_TRUE(seen.empty());
  check(bench.add_one(origin, x), "capture");
  bench.order(origin, fork);
  check(bench.add_one(fork, x), "capture");
  bench.order(fork, origin);
  const GraphHandle open = bench.info(origin).graph;
  EXPECT_EQ(bench.info(fork).graph, open);
  check(bench.graphs.graph_nodes(open, &seen), "list nodes");
  EXPECT_EQ(seen.size(), 2u);

  const GraphHandle ended = bench.end(origin);
  EXPECT_EQ(ended, open);
  std::vector<NodeHandle> nodes;
  check(bench.graphs.graph_nodes(ended, &nodes), "list nodes");
  EXPECT_EQ(nodes, seen);
  EXPECT_EQ(bench.info(origin).graph, GraphHandle::kNull);
}

TEST_P(CaptureConformanceTest, RefusesWorkThatIsNotJoined) {
  DeviceBench bench(GetParam());
  const StreamHandle origin = bench.stream();
  const StreamHandle fork = bench.stream();
  float* const x = bench.floats(1);
  begin(bench, origin);
  bench.order(origin, fork);
  check(bench.add_one(fork, x), "capture");

  EXPECT_EQ(bench.info(origin).status, CaptureStatus::kActive);
  EXPECT_EQ(end(bench, origin), Code::kStreamCaptureUnjoined);
  EXPECT_EQ(bench.add_one(fork, x), Code::kSuccess);
  EXPECT_EQ(bench.read(x), 1);
}

TEST_P(CaptureConformanceTest, RefusesWorkAfterTheJoin) {
  DeviceBench bench(GetParam());
  const StreamHandle origin = bench.stream();
  const StreamHandle fork = bench.stream();
  float* const x = bench.floats(1);
  begin(bench, origin);
  bench.order(origin, fork);
  check(bench.add_one(fork, x), "capture");
  bench.order(fork, origin);
  check(bench.add_one(fork, x), "capture");

  EXPECT_EQ(end(bench, origin), Code::kStreamCaptureUnjoined);
}

TEST_P(CaptureConformanceTest, ForksAStreamWhoseOwnWorkIsPending) {
  DeviceBench bench(GetParam());
  const StreamHandle origin = bench.stream();
  const StreamHandle fork = bench.stream();
  float* const x = bench.floats(100'000);
  check(bench.add_one(fork, x, 100'000), "launch");
  begin(bench, origin);
  bench.order(origin, fork);

  EXPECT_EQ(bench.info(fork).dependencies.size(), 0u);
  EXPECT_EQ(end(bench, origin), Code::kSuccess);
}

TEST_P(CaptureConformanceTest, LosesTheUnjoinedWorkOfADestroyedFork) {
  DeviceBench bench(GetParam());
  const StreamHandle origin = bench.stream();
  const StreamHandle fork = bench.stream();
  float* const x = bench.floats(1);
  begin(bench, origin);
  bench.order(origin, fork);
  check(bench.add_one(fork, x), "capture");
  bench.forget(fork);

  EXPECT_EQ(bench.api.destroy_stream(fork), Code::kSuccess);
  EXPECT_EQ(bench.info(origin).status, CaptureStatus::kActive);
  EXPECT_EQ(end(bench, origin), Code::kStreamCaptureUnjoined);
}

TEST_P(CaptureConformanceTest, KeepsTheJoinedWorkOfADestroyedFork) {
  DeviceBench bench(GetParam());
  const StreamHandle origin = bench.stream();
  const StreamHandle fork = bench.stream();
  float* const x = bench.floats(1);
  begin(bench, origin);
  bench.order(origin, fork);
  check(bench.add_one(fork, x), "capture");
  bench.order(fork, origin);
  bench.forget(fork);

  EXPECT_EQ(bench.api.destroy_stream(fork), Code::kSuccess);
  EXPECT_EQ(bench.node_count(bench.end(origin)), 1u);
}

TEST_P(CaptureConformanceTest, DiscardsTheCaptureOfADestroyedOrigin) {
  DeviceBench bench(GetParam());
  const StreamHandle origin = bench.stream();
  const StreamHandle fork = bench.stream();
  const EventHandle event = bench.event();
  float* const x = bench.floats(1);
  begin(bench, origin);
  check(bench.graphs.record_event(event, origin), "record");
  check(bench.graphs.wait_event(fork, event), "wait");
  bench.forget(origin);

  EXPECT_EQ(bench.api.destroy_stream(origin), Code::kSuccess);
  EXPECT_EQ(bench.info(fork).status, CaptureStatus::kNone);
  EXPECT_EQ(bench.graphs.query_event(event), Code::kInvalidValue);
  EXPECT_EQ(bench.add_one(fork, x), Code::kSuccess);
  EXPECT_EQ(bench.read(x), 1);
}

TEST_P(CaptureConformanceTest, RefusesWorkOnAnInvalidatedCapture) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  const EventHandle event = bench.event();
  float* const x = bench.floats(1);
  begin(bench, stream);
  invalidate(bench, stream);

  EXPECT_EQ(bench.add_one(stream, x), Code::kStreamCaptureInvalidated);
  EXPECT_EQ(bench.graphs.memset(stream, x, 0, 4), Code::kStreamCaptureInvalidated);
  EXPECT_EQ(bench.graphs.record_event(event, stream), Code::kStreamCaptureInvalidated);
  EXPECT_EQ(bench.graphs.wait_event(stream, event), Code::kStreamCaptureInvalidated);
  EXPECT_EQ(bench.api.synchronize_stream(stream), Code::kStreamCaptureUnsupported);
  EXPECT_EQ(bench.graphs.begin_capture(stream, CaptureMode::kRelaxed), Code::kIllegalState);
  EXPECT_EQ(end(bench, stream), Code::kStreamCaptureInvalidated);
}

TEST_P(CaptureConformanceTest, AnInvalidatedCaptureForbidsUnsafeCallsUntilItEnds) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  begin(bench, stream);
  invalidate(bench, stream);
  void* data = nullptr;

  EXPECT_EQ(bench.api.alloc_data_space(0, 64, &data), Code::kStreamCaptureUnsupported);
  EXPECT_EQ(end(bench, stream), Code::kStreamCaptureInvalidated);
  EXPECT_EQ(bench.api.alloc_data_space(0, 64, &data), Code::kSuccess);
  EXPECT_EQ(bench.api.free_data_space(0, data), Code::kSuccess);
}

TEST_P(CaptureConformanceTest, TheStreamIsUsableAfterAFailedCapture) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  begin(bench, stream);
  check(bench.add_one(stream, x), "capture");
  invalidate(bench, stream);
  EXPECT_EQ(end(bench, stream), Code::kStreamCaptureInvalidated);

  EXPECT_EQ(bench.add_one(stream, x), Code::kSuccess);
  EXPECT_EQ(bench.read(x), 1);
  begin(bench, stream);
  EXPECT_EQ(end(bench, stream), Code::kSuccess);
}

TEST_P(CaptureConformanceTest, AnEventStaysCapturedUntilItIsRecordedAgain) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  const StreamHandle other = bench.stream();
  const EventHandle event = bench.event();
  begin(bench, stream);
  check(bench.graphs.record_event(event, stream), "record");
  EXPECT_EQ(end(bench, stream), Code::kSuccess);

  EXPECT_EQ(bench.graphs.query_event(event), Code::kInvalidValue);
  EXPECT_EQ(bench.graphs.synchronize_event(event), Code::kInvalidValue);
  EXPECT_EQ(bench.graphs.wait_event(other, event), Code::kInvalidValue);
  EXPECT_EQ(bench.graphs.wait_event(StreamHandle::kLegacy, event), Code::kInvalidValue);
  EXPECT_EQ(bench.graphs.record_event(event, other), Code::kSuccess);
  EXPECT_EQ(bench.graphs.synchronize_event(event), Code::kSuccess);
}

TEST_P(CaptureConformanceTest, WaitingForAnEventOfAnEarlierCaptureInvalidates) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  const EventHandle event = bench.event();
  begin(bench, stream);
  check(bench.graphs.record_event(event, stream), "record");
  EXPECT_EQ(end(bench, stream), Code::kSuccess);
  begin(bench, stream);

  EXPECT_EQ(bench.graphs.wait_event(stream, event), Code::kInvalidValue);
  EXPECT_EQ(end(bench, stream), Code::kStreamCaptureInvalidated);
}

TEST_P(CaptureConformanceTest, AnEventOfAnInvalidatedCaptureIsNoEvent) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  const StreamHandle other = bench.stream();
  const EventHandle event = bench.event();
  begin(bench, stream);
  check(bench.graphs.record_event(event, stream), "record");
  invalidate(bench, stream);

  EXPECT_EQ(bench.graphs.wait_event(other, event), Code::kInvalidValue);
  EXPECT_EQ(bench.graphs.query_event(event), Code::kInvalidValue);
  EXPECT_EQ(bench.info(other).status, CaptureStatus::kNone);
}

TEST_P(CaptureConformanceTest, AMergeInvalidatesBothCaptures) {
  DeviceBench bench(GetParam());
  const StreamHandle first = bench.stream();
  const StreamHandle second = bench.stream();
  const EventHandle event = bench.event();
  begin(bench, first);
  begin(bench, second);
  check(bench.graphs.record_event(event, first), "record");

  EXPECT_EQ(bench.graphs.wait_event(second, event), Code::kStreamCaptureMerge);
  EXPECT_EQ(end(bench, first), Code::kStreamCaptureInvalidated);
  EXPECT_EQ(end(bench, second), Code::kStreamCaptureInvalidated);
}

TEST_P(CaptureConformanceTest, WorkOnTheLegacyStreamRunsAndIsNotCaptured) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream(StreamKind::kNonBlocking);
  float* const x = bench.floats(1);
  begin(bench, stream);
  check(bench.add_one(StreamHandle::kLegacy, x), "launch");

  EXPECT_EQ(bench.node_count(bench.end(stream)), 0u);
  EXPECT_EQ(bench.read(x), 1);
}

TEST_P(CaptureConformanceTest, ABlockingForkForbidsTheLegacyStream) {
  DeviceBench bench(GetParam());
  const StreamHandle origin = bench.stream(StreamKind::kNonBlocking);
  const StreamHandle fork = bench.stream(StreamKind::kBlocking);
  float* const x = bench.floats(1);
  begin(bench, origin, CaptureMode::kRelaxed);
  bench.order(origin, fork);

  EXPECT_EQ(bench.add_one(StreamHandle::kLegacy, x), Code::kStreamCaptureImplicit);
  EXPECT_EQ(end(bench, origin), Code::kStreamCaptureInvalidated);
}

TEST_P(CaptureConformanceTest, GivesEachCaptureItsOwnId) {
  DeviceBench bench(GetParam());
  const StreamHandle first = bench.stream();
  const StreamHandle second = bench.stream();
  EXPECT_EQ(bench.info(first).id, 0u);
  begin(bench, first);
  begin(bench, second);

  EXPECT_NE(bench.info(first).id, 0u);
  EXPECT_NE(bench.info(first).id, bench.info(second).id);
  const std::uint64_t earlier = bench.info(first).id;
  EXPECT_EQ(end(bench, first), Code::kSuccess);
  begin(bench, first);
  EXPECT_NE(bench.info(first).id, earlier);
}

INSTANTIATE_TEST_SUITE_P(Devices, CaptureConformanceTest,
                         ::testing::ValuesIn(executors_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree::testing
