// The allocator's events on each device there is.
#include "allocator/caching/device_streams.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

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

  StreamId id() const { return static_cast<StreamId>(stream_); }

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
  const EventId event = events_->record(id());
  EXPECT_EQ(events_->is_complete(event), open_);

  open_ = true;
  events_->wait(event);

  EXPECT_TRUE(events_->is_complete(event));
  events_->give_back(event);
}

TEST_P(DeviceStreamEventsTest, AnEventThatIsNotReadyIsNoLastError) {
  block_stream();
  const EventId event = events_->record(id());

  EXPECT_EQ(events_->is_complete(event), open_);

  EXPECT_EQ(bench_->graphs.peek_last_error(), Code::kSuccess);
  events_->give_back(event);
}

TEST_P(DeviceStreamEventsTest, EventsAreUsedAgain) {
  for (int i = 0; i < 10; ++i)
    events_->give_back(events_->record(id()));

  EXPECT_EQ(events_->events_made(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceStreamEventsTest,
                         ::testing::ValuesIn(cgtree::testing::devices_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree
