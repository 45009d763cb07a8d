// Properties of the host device alone: several devices, detected mistakes, threads.
#include "simulator/host_device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "interop/device/device_api.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

class HostDeviceTest : public ::testing::Test {
 protected:
  StreamHandle stream_on(int device, StreamKind kind) {
    StreamHandle stream = StreamHandle::kNull;
    check(bench.api.create_stream(device, kind, &stream), "create a stream");
    return stream;
  }

  DeviceBench bench{{"host", Device::host(), &host_device_api(), ""}};
};

TEST_F(HostDeviceTest, HasEightDevices) {
  for (int id = 0; id < 8; ++id) {
    EXPECT_EQ(bench.api.attribute(id, DeviceAttribute::kExists), AttributeValue{std::int64_t{1}});
    EXPECT_EQ(bench.api.attribute(id, DeviceAttribute::kName),
              AttributeValue{std::string("cgtree host device")});
  }
  EXPECT_EQ(bench.api.attribute(8, DeviceAttribute::kExists), AttributeValue{std::int64_t{0}});
  EXPECT_EQ(bench.api.attribute(8, DeviceAttribute::kName), AttributeValue{});
}

TEST_F(HostDeviceTest, CountsFreeMemoryDownToTheByte) {
  const auto free_bytes = [&] {
    return std::get<std::int64_t>(bench.api.attribute(0, DeviceAttribute::kFreeMemory));
  };
  const std::int64_t before = free_bytes();
  void* data = nullptr;
  check(bench.api.alloc_data_space(1, 1000, &data), "allocate");

  EXPECT_EQ(free_bytes(), before - 1000);
  check(bench.api.free_data_space(1, data), "free");
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(HostDeviceTest, RefusesHandlesThatAreGone) {
  const StreamHandle stream = stream_on(0, StreamKind::kBlocking);
  check(bench.api.destroy_stream(stream), "destroy");
  float* const x = bench.floats(1);

  EXPECT_EQ(bench.add_one(stream, x), Code::kInvalidResourceHandle);
  EXPECT_EQ(bench.api.destroy_stream(stream), Code::kInvalidResourceHandle);
  EXPECT_EQ(bench.api.synchronize_stream(stream), Code::kInvalidResourceHandle);
}

TEST_F(HostDeviceTest, RefusesAKernelWithoutAHostBody) {
  const StreamHandle stream = bench.stream();

  EXPECT_EQ(bench.graphs.launch_kernel(stream, {"device only", nullptr, &stream}, {}, {}),
            Code::kInvalidDeviceFunction);
}

TEST_F(HostDeviceTest, ABodyThatThrowsIsALaunchFailure) {
  const auto fail = [](const LaunchDims&, const void* const*) {
    throw std::runtime_error("assertion in a kernel");
  };
  const StreamHandle stream = bench.stream();

  EXPECT_EQ(bench.graphs.launch_kernel(stream, {"fail", fail, nullptr}, {}, {}),
            Code::kLaunchFailure);
  EXPECT_EQ(bench.api.synchronize_stream(stream), Code::kSuccess);
}

TEST_F(HostDeviceTest, NoNodeIsPatchedOnceItsGraphIsGone) {
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  const std::int64_t count = 1;
  check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin");
  check(bench.add_one(stream, x), "capture");
  const GraphHandle graph = bench.end(stream);
  const ExecHandle exec = bench.instantiate(graph);
  std::vector<NodeHandle> nodes;
  check(bench.graphs.graph_nodes(graph, &nodes), "list nodes");
  bench.forget(graph);
  check(bench.graphs.destroy_graph(graph), "destroy");

  EXPECT_EQ(bench.graphs.set_kernel_node(exec, nodes[0], add_one_kernel(), dims_for(1),
                                         arguments_of(x, count)),
            Code::kInvalidValue);
}

TEST_F(HostDeviceTest, TheLegacyStreamIsOfDeviceZero) {
  const StreamHandle stream = stream_on(1, StreamKind::kBlocking);
  float* const x = bench.floats(1);
  check(bench.graphs.begin_capture(stream, CaptureMode::kRelaxed), "begin");

  EXPECT_EQ(bench.add_one(StreamHandle::kLegacy, x), Code::kSuccess);
  EXPECT_EQ(bench.info(stream).status, CaptureStatus::kActive);
  check(bench.api.destroy_stream(stream), "destroy");
}

TEST_F(HostDeviceTest, SynchronizingAnotherDeviceSparesARelaxedCapture) {
  const StreamHandle stream = stream_on(1, StreamKind::kBlocking);
  check(bench.graphs.begin_capture(stream, CaptureMode::kRelaxed), "begin");

  EXPECT_EQ(bench.api.synchronize_device(0), Code::kSuccess);
  EXPECT_EQ(bench.api.synchronize_device(1), Code::kStreamCaptureUnsupported);
  check(bench.api.destroy_stream(stream), "destroy");
}

// A kernel that reports its start and runs until it is told to stop.
struct Gate {
  std::atomic<bool> is_inside{false};
  std::atomic<bool> may_leave{false};
};

void wait_inside(const LaunchDims&, const void* const* arguments) {
  Gate& gate = **static_cast<Gate* const*>(arguments[0]);
  gate.is_inside = true;
  gate.is_inside.notify_all();
  gate.may_leave.wait(false);
}

TEST_F(HostDeviceTest, AStreamThatRunsWorkOfAnotherThreadIsNotReady) {
  const StreamHandle stream = bench.stream();
  Gate gate;
  Gate* const address = &gate;
  std::thread worker([&] {
    check(bench.graphs.launch_kernel(stream, {"gate", wait_inside, nullptr}, {},
                                     arguments_of(address)),
          "launch");
  });
  gate.is_inside.wait(false);

  EXPECT_EQ(bench.api.query_stream(stream), Code::kNotReady);
  EXPECT_EQ(bench.graphs.peek_last_error(), Code::kSuccess);
  gate.may_leave = true;
  gate.may_leave.notify_all();
  EXPECT_EQ(bench.api.synchronize_stream(stream), Code::kSuccess);
  EXPECT_EQ(bench.api.query_stream(stream), Code::kSuccess);
  worker.join();
}

TEST_F(HostDeviceTest, LegacyWorkWaitsForBlockingStreams) {
  const StreamHandle blocking = bench.stream(StreamKind::kBlocking);
  float* const x = bench.floats(1);
  Gate gate;
  Gate* const address = &gate;
  std::thread worker([&] {
    check(bench.graphs.launch_kernel(blocking, {"gate", wait_inside, nullptr}, {},
                                     arguments_of(address)),
          "launch");
  });
  gate.is_inside.wait(false);
  std::atomic<bool> has_run{false};
  std::thread legacy([&] {
    check(bench.add_one(StreamHandle::kLegacy, x), "launch");
    has_run = true;
  });

  EXPECT_EQ(bench.api.query_stream(StreamHandle::kLegacy), Code::kNotReady);
  EXPECT_FALSE(has_run);
  gate.may_leave = true;
  gate.may_leave.notify_all();
  worker.join();
  legacy.join();
  EXPECT_EQ(bench.read(x), 1);
}

TEST_F(HostDeviceTest, ThreadsCaptureAndLaunchSideBySide) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 50;
  std::vector<std::thread> threads;
  // A bench allocates and synchronises the device in its constructor and destructor, which breaks
  // every capture.
  std::barrier all_are_outside(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      DeviceBench own({"host", Device::host(), &host_device_api(), ""});
      // Non-blocking: another thread's legacy work would break a capture on a blocking stream.
      const StreamHandle origin = own.stream();
      const StreamHandle blocking = own.stream(StreamKind::kBlocking);
      float* const x = own.floats(1);
      all_are_outside.arrive_and_wait();
      for (int round = 0; round < kRounds; ++round) {
        check(own.graphs.begin_capture(origin, CaptureMode::kThreadLocal), "begin");
        check(own.add_one(origin, x), "capture");
        const ExecHandle exec = [&] {
          const GraphHandle graph = own.end(origin);
          return own.instantiate(graph);
        }();
        check(own.graphs.launch(exec, origin), "launch");
        check(own.add_one(blocking, x), "launch");
        check(own.add_one(StreamHandle::kLegacy, x), "launch");
      }
      float result = 0;
      check(own.api.copy(origin, &result, x, sizeof(result)), "copy");
      EXPECT_EQ(result, 3 * kRounds);
      all_are_outside.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads)
    thread.join();
}

}  // namespace
}  // namespace cgtree::testing
