// DeviceAPI: numbers, data space, copies between all memories, order between streams. Tests
// modelled on TVM's name them.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "interop/device/device_api.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

class DeviceApiTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }

  DeviceAPI& api() { return *GetParam().api; }
  bool exists(int id) {
    return api().attribute(id, DeviceAttribute::kExists) == AttributeValue{std::int64_t{1}};
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, DeviceApiTest, ::testing::ValuesIn(executors_under_test()),
                         [](const auto& info) { return info.param.name; });

constexpr int kNoSuchDevice = 4711;

TEST(DeviceAttributeTest, HasTheNumbersOfTvm) {
  const std::vector<DeviceAttribute> in_order = {
      DeviceAttribute::kExists,
      DeviceAttribute::kMaxThreadsPerBlock,
      DeviceAttribute::kWarpSize,
      DeviceAttribute::kMaxSharedMemoryPerBlock,
      DeviceAttribute::kComputeCapability,
      DeviceAttribute::kName,
      DeviceAttribute::kMaxClockRate,
      DeviceAttribute::kMultiProcessors,
      DeviceAttribute::kMaxThreadDimensions,
      DeviceAttribute::kMaxRegistersPerBlock,
      DeviceAttribute::kApiVersion,
      DeviceAttribute::kDriverVersion,
      DeviceAttribute::kL2CacheBytes,
      DeviceAttribute::kTotalMemory,
      DeviceAttribute::kFreeMemory,
  };
  // 10 is the architecture of AMD, and is not supported.
  for (std::size_t i = 0; i < in_order.size(); ++i)
    EXPECT_EQ(static_cast<std::size_t>(in_order[i]), i < 10 ? i : i + 1);
}

TEST_P(DeviceApiTest, AnAttributeOfAnUnknownNumberIsNothing) {
  for (const int number : {-1, 10, 16, 17, 999, 1007, 1 << 30}) {
    EXPECT_EQ(api().attribute(0, static_cast<DeviceAttribute>(number)), AttributeValue{}) << number;
  }
}

TEST_P(DeviceApiTest, AttributesHaveTheTypeTheyPromise) {
  using A = DeviceAttribute;
  for (const A a : {A::kExists, A::kTotalMemory, A::kFreeMemory, A::kMultiProcessors,
                    A::kSupportsStreamCapture, A::kSupportsGraphUpdate, A::kSupportsMemoryPools,
                    A::kSupportsConditionalNodes, A::kSupportsMapping, A::kSupportsProgress}) {
    EXPECT_TRUE(std::holds_alternative<std::int64_t>(api().attribute(0, a))) << static_cast<int>(a);
  }
  EXPECT_TRUE(std::holds_alternative<std::string>(api().attribute(0, A::kName)));
  if (GetParam().name != "cuda") return;
  for (const A a : {A::kMaxThreadsPerBlock, A::kWarpSize, A::kMaxSharedMemoryPerBlock,
                    A::kMaxClockRate, A::kMaxRegistersPerBlock, A::kApiVersion, A::kL2CacheBytes}) {
    EXPECT_GT(std::get<std::int64_t>(api().attribute(0, a)), 0) << static_cast<int>(a);
  }
  EXPECT_EQ(std::get<std::string>(api().attribute(0, A::kMaxThreadDimensions)), "[1024, 1024, 64]");
}

TEST_P(DeviceApiTest, SettingADeviceThatDoesNotExistIsRefused) {
  EXPECT_EQ(api().set_device(kNoSuchDevice), Code::kInvalidDevice);
  EXPECT_EQ(api().set_device(0), Code::kSuccess);
  static_cast<void>(GetParam().graphs().take_last_error());
}

// TVM: alloc_free_cpu, alloc_free_hex.
TEST_P(DeviceApiTest, GivesAndTakesBackAlignedMemory) {
  for (const std::size_t bytes : {1, 100, 4096}) {
    void* data = nullptr;
    ASSERT_EQ(api().alloc_data_space(0, bytes, &data), Code::kSuccess);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % kDataSpaceAlignment, 0u);
    EXPECT_EQ(api().free_data_space(0, data), Code::kSuccess);
  }
}

// TVM: alloc_errors.
TEST_P(DeviceApiTest, RefusesToAllocateOnADeviceThatDoesNotExist) {
  void* data = nullptr;
  EXPECT_EQ(api().alloc_data_space(kNoSuchDevice, 64, &data), Code::kInvalidDevice);
  EXPECT_EQ(data, nullptr);
  static_cast<void>(GetParam().graphs().take_last_error());
}

// TVM: free_errors. Null is permitted here, as in CUDA.
TEST_P(DeviceApiTest, RefusesToFreeOnADeviceThatDoesNotExistAndTwice) {
  void* data = nullptr;
  ASSERT_EQ(api().alloc_data_space(0, 64, &data), Code::kSuccess);
  EXPECT_EQ(api().free_data_space(kNoSuchDevice, data), Code::kInvalidDevice);
  EXPECT_EQ(api().free_data_space(0, data), Code::kSuccess);
  EXPECT_EQ(api().free_data_space(0, data), Code::kInvalidValue);
  static_cast<void>(GetParam().graphs().take_last_error());
}

// A kind of memory; copies between all kinds must work.
struct Memory {
  std::string name;
  void* data;
  int id = 0;
};

// Waits for each copy: pageable memory may be read when the copy is enqueued.
TEST_P(DeviceApiTest, CopiesBetweenEveryPairOfMemories) {
  DeviceBench bench(GetParam());
  constexpr std::size_t kCount = 1000;
  constexpr std::size_t kBytes = kCount * sizeof(float);
  const StreamHandle stream = bench.stream();
  std::vector<float> plain(kCount);
  std::vector<Memory> memories = {{"host", plain.data()},
                                  {"pinned", bench.pinned_floats(kCount, 0)},
                                  {"device", bench.floats(kCount)}};
  const int peer = exists(1) ? 1 : 0;
  void* on_peer = nullptr;
  check(api().alloc_data_space(peer, kBytes, &on_peer), "allocate");
  memories.push_back({"peer", on_peer, peer});
  std::vector<float> sent(kCount);
  std::vector<float> received(kCount);
  const auto copy = [&](void* to, const void* source) {
    check(api().copy(stream, to, source, kBytes), "copy");
    check(api().synchronize_stream(stream), "synchronize");
  };
  float first = 0;
  for (const Memory& from : memories) {
    for (const Memory& to : memories) {
      if (from.data == to.data) continue;
      std::iota(sent.begin(), sent.end(), first += 1);
      const std::vector<float> poison(kCount, -1);
      copy(to.data, poison.data());
      copy(from.data, sent.data());
      const bool is_peer = from.id != to.id && from.name != "host" && from.name != "pinned" &&
                           to.name != "host" && to.name != "pinned";
      if (is_peer) {
        check(api().copy_peer(stream, to.data, to.id, from.data, from.id, kBytes), "copy");
        check(api().synchronize_stream(stream), "synchronize");
      } else {
        copy(to.data, from.data);
      }
      copy(received.data(), to.data);
      EXPECT_EQ(received, sent) << from.name << " to " << to.name;
    }
  }
  check(api().free_data_space(peer, on_peer), "free");
}

TEST_P(DeviceApiTest, RefusesAPeerThatDoesNotExist) {
  DeviceBench bench(GetParam());
  float* const x = bench.floats(2);

  EXPECT_EQ(api().copy_peer(bench.stream(), x, 0, x + 1, kNoSuchDevice, 4), Code::kInvalidDevice);
  EXPECT_EQ(api().copy_peer(bench.stream(), x, kNoSuchDevice, x + 1, 0, 4), Code::kInvalidDevice);
}

void take_a_while(void*) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

TEST_P(DeviceApiTest, AStreamGoesOnOnlyWhenTheOneItWaitsForIsThere) {
  DeviceBench bench(GetParam());
  const StreamHandle from = bench.stream();
  const StreamHandle to = bench.stream();
  float* const x = bench.floats(1000);

  for (float round = 1; round <= 3; ++round) {
    check(bench.graphs.launch_host_function(from, &take_a_while, nullptr), "launch");
    check(bench.fill(from, x, round, 1000), "fill");
    ASSERT_EQ(api().sync_stream_from_to(0, from, to), Code::kSuccess);
    check(bench.add_one(to, x, 1000), "add");
    check(api().synchronize_stream(to), "synchronize");
    EXPECT_EQ(bench.read(x + 999), round + 1);
  }
}

TEST_P(DeviceApiTest, AStreamWaitsForOneOfAnotherDevice) {
  DeviceBench bench(GetParam());
  StreamHandle from = StreamHandle::kNull;
  const int other = exists(1) ? 1 : 0;  // or that of the only device
  check(api().create_stream(other, StreamKind::kNonBlocking, &from), "create a stream");
  const StreamHandle to = bench.stream();
  float* const pinned = bench.pinned_floats(1, 0);
  float* const x = bench.floats(1);

  const auto write = [](void* data) {
    take_a_while(nullptr);
    *static_cast<float*>(data) += 5;
  };
  for (float sum = 5; sum <= 15; sum += 5) {
    check(bench.graphs.launch_host_function(from, write, pinned), "launch");
    ASSERT_EQ(api().sync_stream_from_to(other, from, to), Code::kSuccess);
    check(api().copy(to, x, pinned, sizeof(float)), "copy");

    EXPECT_EQ(bench.read(x), sum);
  }
  check(api().destroy_stream(from), "destroy");
}

TEST_P(DeviceApiTest, WaitingBetweenTheStreamsOfACaptureIsAnEdge) {
  DeviceBench bench(GetParam());
  const StreamHandle main = bench.stream();
  const StreamHandle side = bench.stream();
  float* const x = bench.floats(1, 1);

  check(bench.graphs.begin_capture(main, CaptureMode::kThreadLocal), "begin");
  check(bench.add_one(main, x), "add");
  ASSERT_EQ(api().sync_stream_from_to(0, main, side), Code::kSuccess);
  check(bench.add_one(side, x), "add");
  ASSERT_EQ(api().sync_stream_from_to(0, side, main), Code::kSuccess);
  const GraphHandle graph = bench.end(main);

  EXPECT_EQ(bench.node_count(graph), 2u);
  check(bench.graphs.launch(bench.instantiate(graph), main), "launch");
  check(api().synchronize_stream(main), "synchronize");
  EXPECT_EQ(bench.read(x), 3);
}

}  // namespace
}  // namespace cgtree::testing
