// The caching allocator of a real device inside real captures: reuse follows the captured graph.
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "base/error.h"
#include "caching/caching_allocator.h"
#include "caching/captures/capture_session.h"
#include "caching/captures/device_capture_dag.h"
#include "caching/device_allocator.h"
#include "caching/device_streams.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

constexpr std::size_t kBytes = std::size_t{16} << 20;  // a segment of its own

class DeviceCaptureTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    bench_ = std::make_unique<DeviceBench>(GetParam());
    device_ = std::make_unique<DeviceAllocator>(GetParam().device);
    allocator_ = &device_->allocator();
    main_ = bench_->stream();
    side_ = bench_->stream();
    work_ = bench_->floats(1);
  }
  void TearDown() override {
    if (!bench_) return;
    allocator_->trim();
    EXPECT_EQ(device_->budget().current(), device_->cache().statistics().bytes_cached);
  }

  // Runs `body` inside a capture on the main stream, whose allocations go to a pool of its own.
  template <typename Body>
  void capture(Body body) {
    PoolHandle pool = allocator_->make_pool();
    check(bench_->graphs.begin_capture(main_, CaptureMode::kThreadLocal), "begin a capture");
    {
      DeviceCaptureDag dag(StreamRef(GetParam().device, main_));
      DagOrder order(dag);
      const StreamId streams[] = {id(main_), id(side_)};
      CaptureScope scope = cgtree::begin_capture(*allocator_, pool, streams, order);
      body();
    }
    static_cast<void>(bench_->end(main_));
  }
  // A node on the stream.
  void work(StreamHandle stream) { check(bench_->add_one(stream, work_), "launch"); }
  StreamId id(StreamHandle stream) { return stream_id(StreamRef(GetParam().device, stream)); }
  void* allocate(StreamHandle stream) { return allocator_->allocate(kBytes, id(stream)); }

  std::unique_ptr<DeviceBench> bench_;
  std::unique_ptr<DeviceAllocator> device_;
  CachingAllocator* allocator_ = nullptr;
  StreamHandle main_ = StreamHandle::kNull;
  StreamHandle side_ = StreamHandle::kNull;
  float* work_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Devices, DeviceCaptureTest, ::testing::ValuesIn(devices_under_test()),
                         ::testing::PrintToStringParamName());

// Row graph_capture_reclaim_2_streams, on the device's own graph.
// Acceptance: pools graph_capture_reclaim_2_streams.
TEST_P(DeviceCaptureTest, WhatASideStreamFreedTheMainStreamGetsOnlyAfterTheJoin) {
  capture([&] {
    work(main_);
    bench_->order(main_, side_);
    void* const block = allocate(side_);
    work(side_);
    allocator_->free(block);

    void* const before = allocate(main_);
    work(main_);
    EXPECT_NE(before, block);
    bench_->order(side_, main_);
    void* const after = allocate(main_);
    EXPECT_EQ(after, block);

    allocator_->free(before);
    allocator_->free(after);
  });
}

TEST_P(DeviceCaptureTest, OneStreamReusesAtOnce) {
  capture([&] {
    void* const first = allocate(main_);
    work(main_);
    allocator_->free(first);
    void* const second = allocate(main_);
    EXPECT_EQ(second, first);
    allocator_->free(second);
  });
}

TEST_P(DeviceCaptureTest, AStreamThatIsNoPartOfTheCaptureGetsEagerMemory) {
  const StreamHandle other = bench_->stream();
  void* outside = nullptr;
  capture([&] {
    void* const inside = allocate(main_);
    work(main_);
    outside = allocate(other);
    EXPECT_NE(outside, inside);
    allocator_->free(inside);
    EXPECT_TRUE(device_->cache().is_capture_open());
  });
  EXPECT_FALSE(device_->cache().is_capture_open());
  allocator_->free(outside);
}

TEST_P(DeviceCaptureTest, NothingGoesBackToTheDeviceWhileACaptureIsOpen) {
  allocator_->free(allocate(main_));
  capture([&] {
    work(main_);
    EXPECT_EQ(allocator_->trim(), 0u);
    EXPECT_GE(device_->cache().statistics().bytes_deferred, kBytes);
  });
  EXPECT_EQ(device_->cache().statistics().bytes_deferred, 0u);
}

TEST_P(DeviceCaptureTest, AStreamThatDoesNotCaptureIsRefused) {
  EXPECT_THROW(DeviceCaptureDag(StreamRef(GetParam().device, main_)), InvalidArgument);
}

// Work on both streams that really runs: what one writes the other must not find overwritten.
TEST_P(DeviceCaptureTest, AnotherStreamsUseDelaysReuseUntilItsWorkIsDone) {
  const std::size_t count = kBytes / sizeof(float);
  for (int round = 0; round < 20; ++round) {
    auto* const block = static_cast<float*>(allocate(main_));
    check(bench_->fill(main_, block, static_cast<float>(round), static_cast<std::int64_t>(count)),
          "fill");
    bench_->order(main_, side_);
    allocator_->use(block, id(side_));
    check(bench_->api.copy(side_, work_, block + count - 1, sizeof(float)), "copy");
    allocator_->free(block);
    auto* const next = static_cast<float*>(allocate(main_));
    check(bench_->fill(main_, next, -1, static_cast<std::int64_t>(count)), "fill");
    check(bench_->api.synchronize_stream(side_), "wait");
    EXPECT_EQ(bench_->read(work_), static_cast<float>(round));
    allocator_->free(next);
  }
}

TEST_P(DeviceCaptureTest, SharedSegmentsAreOneForAllUsersAndGoWithTheLast) {
  const Device device = GetParam().device;
  std::shared_ptr<DeviceAllocator> first = DeviceAllocator::shared(device);
  const std::weak_ptr<DeviceAllocator> watched = first;
  std::shared_ptr<DeviceAllocator> second = DeviceAllocator::shared(device);

  EXPECT_EQ(first, second);
  first.reset();
  EXPECT_FALSE(watched.expired());
  second.reset();
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace cgtree::testing
