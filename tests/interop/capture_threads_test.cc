// Captures and the threads that begin, end and disturb them: the same results on every device.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "interop/device/graph_api.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

class CaptureThreadsTest : public ::testing::TestWithParam<DeviceUnderTest> {
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

TEST_P(CaptureThreadsTest, EndingOnTheWrongThreadEndsTheCapture) {
  for (const CaptureMode mode : {CaptureMode::kGlobal, CaptureMode::kThreadLocal}) {
    DeviceBench bench(GetParam());
    const StreamHandle stream = bench.stream();
    begin(bench, stream, mode);
    Code elsewhere = Code::kSuccess;
    std::thread([&] { elsewhere = end(bench, stream); }).join();

    EXPECT_EQ(elsewhere, Code::kStreamCaptureWrongThread);
    EXPECT_EQ(bench.info(stream).status, CaptureStatus::kNone);
    EXPECT_EQ(end(bench, stream), Code::kIllegalState);
  }
}

TEST_P(CaptureThreadsTest, AnInvalidatedCaptureMayEndOnAnyThread) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  begin(bench, stream);
  invalidate(bench, stream);
  Code elsewhere = Code::kSuccess;
  std::thread([&] { elsewhere = end(bench, stream); }).join();

  EXPECT_EQ(elsewhere, Code::kStreamCaptureInvalidated);
  EXPECT_EQ(end(bench, stream), Code::kIllegalState);
}

TEST_P(CaptureThreadsTest, ARelaxedCaptureMayEndOnAnotherThread) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  begin(bench, stream, CaptureMode::kRelaxed);
  Code elsewhere = Code::kUnknown;
  std::thread([&] { elsewhere = end(bench, stream); }).join();

  EXPECT_EQ(elsewhere, Code::kSuccess);
}

TEST_P(CaptureThreadsTest, ThreadsMayCaptureSideBySide) {
  DeviceBench bench(GetParam());
  const StreamHandle mine = bench.stream();
  const StreamHandle theirs = bench.stream();
  float* const x = bench.floats(1);
  begin(bench, mine, CaptureMode::kGlobal);
  Code elsewhere = Code::kUnknown;
  std::thread([&] {
    begin(bench, theirs, CaptureMode::kGlobal);
    check(bench.add_one(theirs, x), "capture");
    elsewhere = end(bench, theirs);
  }).join();

  EXPECT_EQ(elsewhere, Code::kSuccess);
  EXPECT_EQ(end(bench, mine), Code::kSuccess);
}

TEST_P(CaptureThreadsTest, AnUnsafeCallEndsAllCapturesThatForbidIt) {
  DeviceBench bench(GetParam());
  const StreamHandle mine = bench.stream();
  const StreamHandle theirs = bench.stream();
  const StreamHandle other = bench.stream();
  begin(bench, mine, CaptureMode::kGlobal);
  Code call = Code::kSuccess;
  Code elsewhere = Code::kSuccess;
  std::thread([&] {
    begin(bench, theirs, CaptureMode::kThreadLocal);
    call = bench.api.synchronize_stream(other);
    elsewhere = end(bench, theirs);
  }).join();

  EXPECT_EQ(call, Code::kStreamCaptureUnsupported);
  EXPECT_EQ(elsewhere, Code::kStreamCaptureInvalidated);
  EXPECT_EQ(bench.info(mine).status, CaptureStatus::kInvalidated);
  EXPECT_EQ(end(bench, mine), Code::kStreamCaptureInvalidated);
}

TEST_P(CaptureThreadsTest, AThreadThatIsThreadLocalIgnoresCapturesOfOthers) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  const StreamHandle other = bench.stream();
  begin(bench, stream, CaptureMode::kGlobal);
  Code call = Code::kUnknown;
  std::thread([&] {
    CaptureMode mode = CaptureMode::kThreadLocal;
    check(bench.graphs.exchange_capture_mode(&mode), "exchange");
    EXPECT_EQ(mode, CaptureMode::kGlobal);
    call = bench.api.synchronize_stream(other);
  }).join();

  EXPECT_EQ(call, Code::kSuccess);
  EXPECT_EQ(end(bench, stream), Code::kSuccess);
}

TEST_P(CaptureThreadsTest, ARelaxedThreadStillMayNotWaitForItsCapture) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  begin(bench, stream, CaptureMode::kGlobal);
  CaptureMode mode = CaptureMode::kRelaxed;
  check(bench.graphs.exchange_capture_mode(&mode), "exchange");

  EXPECT_EQ(bench.api.query_stream(stream), Code::kStreamCaptureUnsupported);
  EXPECT_EQ(end(bench, stream), Code::kStreamCaptureInvalidated);
}

TEST_P(CaptureThreadsTest, CapturesThePerThreadStreamOfOneThreadOnly) {
  DeviceBench bench(GetParam());
  float* const x = bench.floats(1);
  begin(bench, StreamHandle::kPerThread);
  CaptureStatus theirs = CaptureStatus::kActive;
  std::thread([&] {
    theirs = bench.info(StreamHandle::kPerThread).status;
    check(bench.add_one(StreamHandle::kPerThread, x), "launch");
  }).join();
  check(bench.add_one(StreamHandle::kPerThread, x), "capture");

  EXPECT_EQ(theirs, CaptureStatus::kNone);
  EXPECT_EQ(bench.node_count(bench.end(StreamHandle::kPerThread)), 1u);
  EXPECT_EQ(bench.read(x), 1);
}

INSTANTIATE_TEST_SUITE_P(Devices, CaptureThreadsTest, ::testing::ValuesIn(executors_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree::testing
