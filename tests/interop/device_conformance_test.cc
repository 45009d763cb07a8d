// Memory, copies, streams and errors: the same results on every device.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "interop/device/device_api.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

class DeviceConformanceTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }

  DeviceAPI& api() { return *GetParam().api; }
  GraphAPI& graphs() { return GetParam().graphs(); }
};

constexpr int kNoSuchDevice = 4711;

TEST_P(DeviceConformanceTest, SaysWhichDevicesExistWithoutFailing) {
  EXPECT_EQ(api().attribute(0, DeviceAttribute::kExists), AttributeValue{std::int64_t{1}});
  EXPECT_EQ(api().attribute(kNoSuchDevice, DeviceAttribute::kExists),
            AttributeValue{std::int64_t{0}});
  EXPECT_EQ(api().attribute(-1, DeviceAttribute::kExists), AttributeValue{std::int64_t{0}});
}

TEST_P(DeviceConformanceTest, RefusesADeviceThatDoesNotExist) {
  void* data = nullptr;
  StreamHandle stream = StreamHandle::kNull;

  EXPECT_EQ(api().alloc_data_space(kNoSuchDevice, 64, &data), Code::kInvalidDevice);
  EXPECT_EQ(api().create_stream(kNoSuchDevice, StreamKind::kBlocking, &stream),
            Code::kInvalidDevice);
  EXPECT_EQ(api().synchronize_device(kNoSuchDevice), Code::kInvalidDevice);
  EXPECT_EQ(graphs().take_last_error(), Code::kInvalidDevice);
}

TEST_P(DeviceConformanceTest, AllocatesAlignedTo256Bytes) {
  DeviceBench bench(GetParam());

  for (const std::int64_t count : {1, 7, 100}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bench.floats(count)) % 256, 0u) << count;
  }
}

TEST_P(DeviceConformanceTest, RefusesToFreeWhatItDidNotAllocate) {
  DeviceBench bench(GetParam());
  float on_stack = 0;
  void* data = nullptr;
  check(bench.api.alloc_data_space(0, 64, &data), "allocate");

  EXPECT_EQ(bench.api.free_data_space(0, &on_stack), Code::kInvalidValue);
  EXPECT_EQ(bench.api.free_pinned(&on_stack), Code::kInvalidValue);
  EXPECT_EQ(bench.api.free_pinned(data), Code::kInvalidValue);
  EXPECT_EQ(bench.api.free_data_space(0, bench.pinned_floats(1, 0)), Code::kInvalidValue);
  EXPECT_EQ(bench.api.free_data_space(0, data), Code::kSuccess);
  EXPECT_EQ(bench.api.free_data_space(0, data), Code::kInvalidValue);
}

TEST_P(DeviceConformanceTest, FreesNull) {
  EXPECT_EQ(api().free_data_space(0, nullptr), Code::kSuccess);
  EXPECT_EQ(api().free_pinned(nullptr), Code::kSuccess);
}

TEST_P(DeviceConformanceTest, SaysWhoseMemoryAnAddressLiesIn) {
  DeviceBench bench(GetParam());
  const auto attributes_of = [&](const void* pointer) {
    PointerAttributes attributes{PointerKind::kManaged, kNoSuchDevice};
    EXPECT_EQ(bench.api.pointer_attributes(pointer, &attributes), Code::kSuccess);
    return attributes;
  };
  float on_stack = 0;
  const float* const data = bench.floats(100);

  EXPECT_EQ(attributes_of(data), (PointerAttributes{PointerKind::kDevice, 0}));
  EXPECT_EQ(attributes_of(data + 99), (PointerAttributes{PointerKind::kDevice, 0}));
  EXPECT_EQ(attributes_of(bench.pinned_floats(1, 0)).kind, PointerKind::kPinned);
  EXPECT_EQ(attributes_of(&on_stack).kind, PointerKind::kUnknown);
  const StreamHandle stream = bench.stream();
  check(bench.graphs.begin_capture(stream, CaptureMode::kGlobal), "begin");
  EXPECT_EQ(attributes_of(data).kind, PointerKind::kDevice);
  EXPECT_EQ(bench.info(stream).status, CaptureStatus::kActive);
  bench.end(stream);
}

TEST_P(DeviceConformanceTest, AnswersOutOfMemoryWithANumber) {
  DeviceBench bench(GetParam());
  void* data = nullptr;

  EXPECT_EQ(bench.api.alloc_data_space(0, std::size_t{1} << 50, &data), Code::kMemoryAllocation);
  EXPECT_EQ(bench.api.alloc_pinned(std::size_t{1} << 50, &data), Code::kMemoryAllocation);
  EXPECT_EQ(data, nullptr);
}

TEST_P(DeviceConformanceTest, CopiesBetweenHostAndDevice) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  std::vector<float> sent(1000);
  std::iota(sent.begin(), sent.end(), 1.0f);
  std::vector<float> received(sent.size());
  const std::size_t bytes = sent.size() * sizeof(float);
  float* const first = bench.floats(1000);
  float* const second = bench.floats(1000);

  check(bench.api.copy(stream, first, sent.data(), bytes), "copy in");
  check(bench.api.copy(stream, second, first, bytes), "copy");
  check(bench.api.copy(stream, received.data(), second, bytes), "copy out");
  check(bench.api.synchronize_stream(stream), "synchronize");

  EXPECT_EQ(received, sent);
}

TEST_P(DeviceConformanceTest, RefusesToCopyToNull) {
  DeviceBench bench(GetParam());

  EXPECT_EQ(bench.api.copy(bench.stream(), nullptr, bench.floats(1), 4), Code::kInvalidValue);
  EXPECT_EQ(bench.api.copy(bench.stream(), nullptr, nullptr, 0), Code::kSuccess);
}

TEST_P(DeviceConformanceTest, RunsKernelsInTheOrderOfTheirStream) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(300);
  float* const y = bench.floats(300);
  const float a = 2;
  const std::int64_t count = 300;

  check(bench.fill(stream, x, 3, count), "fill");
  check(bench.add_one(stream, x, count), "add");
  check(bench.graphs.launch_kernel(stream, axpy_kernel(), dims_for(count),
                                   arguments_of(a, x, y, count)),
        "axpy");

  EXPECT_EQ(bench.read(y + 299), 8);
}

TEST_P(DeviceConformanceTest, DoesNotDestroyTheBuiltInStreams) {
  EXPECT_EQ(api().destroy_stream(StreamHandle::kLegacy), Code::kInvalidResourceHandle);
  EXPECT_EQ(api().destroy_stream(StreamHandle::kPerThread), Code::kInvalidResourceHandle);
  static_cast<void>(graphs().take_last_error());
}

TEST_P(DeviceConformanceTest, TreatsAnEventThatWasNeverRecordedAsComplete) {
  DeviceBench bench(GetParam());
  const EventHandle event = bench.event();

  EXPECT_EQ(bench.graphs.query_event(event), Code::kSuccess);
  EXPECT_EQ(bench.graphs.synchronize_event(event), Code::kSuccess);
  EXPECT_EQ(bench.graphs.wait_event(bench.stream(), event), Code::kSuccess);
}

TEST_P(DeviceConformanceTest, AnEventOrdersTheWorkOfTwoStreams) {
  DeviceBench bench(GetParam());
  const StreamHandle first = bench.stream();
  const StreamHandle second = bench.stream();
  float* const x = bench.floats(100'000);

  for (int round = 0; round < 20; ++round) {
    check(bench.fill(first, x, static_cast<float>(round), 100'000), "launch");
    bench.order(first, second);
    check(bench.add_one(second, x, 100'000), "launch");
    bench.order(second, first);
  }

  EXPECT_EQ(bench.read(x + 99'999), 20);
}

TEST_P(DeviceConformanceTest, SynchronizingAStreamWaitsForItsWork) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(100'000);
  float* const pinned = bench.pinned_floats(1, 0);
  for (int i = 0; i < 20; ++i)
    check(bench.add_one(stream, x, 100'000), "launch");
  check(bench.api.copy(stream, pinned, x + 99'999, sizeof(float)), "copy");

  check(bench.api.synchronize_stream(stream), "synchronize");

  EXPECT_EQ(*pinned, 20);
}

TEST_P(DeviceConformanceTest, RefusesNullHandles) {
  DeviceBench bench(GetParam());
  ExecHandle exec = ExecHandle::kNull;

  EXPECT_EQ(bench.graphs.destroy_event(EventHandle::kNull), Code::kInvalidResourceHandle);
  EXPECT_EQ(bench.graphs.query_event(EventHandle::kNull), Code::kInvalidResourceHandle);
  EXPECT_EQ(bench.graphs.destroy_graph(GraphHandle::kNull), Code::kInvalidValue);
  EXPECT_EQ(bench.graphs.instantiate(GraphHandle::kNull, &exec), Code::kInvalidValue);
  EXPECT_EQ(bench.graphs.destroy_exec(ExecHandle::kNull), Code::kInvalidValue);
  EXPECT_EQ(bench.graphs.launch(ExecHandle::kNull, bench.stream()), Code::kInvalidValue);
  EXPECT_EQ(bench.graphs.launch_host_function(bench.stream(), nullptr, nullptr),
            Code::kInvalidValue);
}

TEST_P(DeviceConformanceTest, KeepsTheLastErrorUntilItIsTaken) {
  DeviceBench bench(GetParam());
  GraphHandle graph = GraphHandle::kNull;
  static_cast<void>(bench.graphs.end_capture(bench.stream(), &graph));
  check(bench.api.synchronize_stream(StreamHandle::kPerThread), "synchronize");

  EXPECT_EQ(bench.graphs.peek_last_error(), Code::kIllegalState);
  EXPECT_EQ(bench.graphs.take_last_error(), Code::kIllegalState);
  EXPECT_EQ(bench.graphs.take_last_error(), Code::kSuccess);
}

TEST_P(DeviceConformanceTest, KeepsTheLastErrorToItsThread) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  std::thread([&] {
    GraphHandle graph = GraphHandle::kNull;
    static_cast<void>(bench.graphs.end_capture(stream, &graph));
  }).join();

  EXPECT_EQ(bench.graphs.peek_last_error(), Code::kSuccess);
}

struct CallInside {
  GraphAPI* graphs;
  Code answer = Code::kSuccess;
};

TEST_P(DeviceConformanceTest, PermitsNoCallsInsideAHostFunction) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  CallInside inside{&bench.graphs};
  const auto call_the_device = [](void* data) {
    auto& call = *static_cast<CallInside*>(data);
    EventHandle event = EventHandle::kNull;
    call.answer = call.graphs->create_event(&event);
  };

  check(bench.graphs.launch_host_function(stream, call_the_device, &inside), "launch");
  check(bench.api.synchronize_stream(stream), "synchronize");

  EXPECT_EQ(inside.answer, Code::kNotPermitted);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceConformanceTest,
                         ::testing::ValuesIn(executors_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree::testing
