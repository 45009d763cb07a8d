// The allocator's events on each device there is.
#include "allocator/caching/device_streams.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "allocator/caching/device_allocator.h"
#include "base/error.h"
#include "tests/support/device_bench.h"
#include "tests/support/devices.h"

namespace cgtree {
namespace {

using testing::DeviceUnderTest;

class DeviceStreamEventsTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    bench_.emplace(GetParam());
    stream_ = bench_->stream();
    events_.emplace(GetParam().device);
  }
  void TearDown() override { open_ = true; }

  StreamRef ref(StreamHandle stream) const { return {*GetParam().api, GetParam().device, stream}; }
  StreamId id() const { return stream_id(ref(stream_)); }

  // Work that ends when `open_` is set. The host device ends all work before the launch returns.
  void block_stream() {
    if (GetParam().name == "host") open_ = true;
    check(bench_->graphs.launch_host_function(
              stream_,
              [](void* open) {
                while (!static_cast<std::atomic<bool>*>(open)->load())
                  std::this_thread::yield();
              },
              &open_),
          "launch");
  }

  std::atomic<bool> open_{false};
  std::optional<cgtree::testing::DeviceBench> bench_;
  std::optional<DeviceStreamEvents> events_;
  StreamHandle stream_{};
};

TEST_P(DeviceStreamEventsTest, AnEventIsCompleteOnceTheWorkBeforeItIsDone) {
  block_stream();
  const EventId event = *events_->record(id());
  EXPECT_EQ(events_->is_complete(event), open_);

  open_ = true;
  events_->wait(event);

  EXPECT_TRUE(events_->is_complete(event));
  events_->give_back(event);
}

TEST_P(DeviceStreamEventsTest, AnEventThatIsNotReadyIsNoLastError) {
  block_stream();
  const EventId event = *events_->record(id());

  EXPECT_EQ(events_->is_complete(event), open_);

  EXPECT_EQ(bench_->graphs.peek_last_error(), Code::kSuccess);
  events_->give_back(event);
}

TEST_P(DeviceStreamEventsTest, EventsAreUsedAgain) {
  for (int i = 0; i < 10; ++i)
    events_->give_back(*events_->record(id()));

  EXPECT_EQ(events_->events_made(), 1u);
}

TEST_P(DeviceStreamEventsTest, CapturesOfOthersSurviveEveryCall) {
  const EventId before = *events_->record(id());
  for (const CaptureMode mode : {CaptureMode::kGlobal, CaptureMode::kThreadLocal}) {
    const StreamHandle captured = bench_->stream();
    const StreamId captured_id = stream_id(ref(captured));
    check(bench_->graphs.begin_capture(captured, mode), "begin a capture");

    EXPECT_FALSE(events_->record(captured_id));
    const std::optional<EventId> during = events_->record(id());
    ASSERT_TRUE(during);
    events_->wait(*during);
    EXPECT_TRUE(events_->is_complete(*during));
    EXPECT_TRUE(events_->is_complete(before));
    events_->give_back(*during);

    EXPECT_EQ(bench_->graphs.peek_last_error(), Code::kSuccess);
    CaptureInfo info;
    check(bench_->graphs.capture_info(captured, &info), "ask");
    EXPECT_EQ(info.status, CaptureStatus::kActive);
    EXPECT_EQ(bench_->node_count(bench_->end(captured)), 0u);
  }
  events_->give_back(before);
}

TEST_P(DeviceStreamEventsTest, AStreamThatIsAnotherOnEachThreadIsRefused) {
  EXPECT_THROW((void)stream_id(ref(StreamHandle::kPerThread)), InvalidArgument);
  EXPECT_THROW((void)recent_stream_id(ref(StreamHandle::kPerThread)), InvalidArgument);
  EXPECT_NO_THROW((void)stream_id(ref(stream_)));
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceStreamEventsTest,
                         ::testing::ValuesIn(cgtree::testing::devices_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree
