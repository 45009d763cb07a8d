// The number of events that tracking the progress of streams takes, and the times when events are
// not allowed.
#include "allocator/segments/stream_progress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "tests/allocator/fake_device.h"

namespace cgtree {
namespace {

constexpr StreamId kStream = 7;
constexpr StreamId kOther = 8;

class StreamProgressTest : public testing::Test {
 protected:
  FakeDevice device_;
  DriverGate gate_;
  StreamProgress progress_{&device_, gate_};
};

TEST_F(StreamProgressTest, APointIsCompleteOnceTheWorkBeforeItIsDone) {
  device_.submit(kStream);
  const StreamPoint point = progress_.now(kStream);

  progress_.poll();
  EXPECT_FALSE(progress_.is_complete(point));
  device_.finish(kStream);
  progress_.poll();

  EXPECT_TRUE(progress_.is_complete(point));
}

TEST_F(StreamProgressTest, TakingPointsAsksTheDeviceNothing) {
  for (int i = 0; i < 10; ++i)
    progress_.now(kStream);

  EXPECT_EQ(device_.events_recorded(), 0u);
  EXPECT_EQ(device_.events_queried(), 0u);
}

TEST_F(StreamProgressTest, OneEventCoversAllPointsSinceTheLast) {
  const StreamPoint first = progress_.now(kStream);
  const StreamPoint second = progress_.now(kStream);

  progress_.poll();

  EXPECT_EQ(device_.events_recorded(), 1u);
  EXPECT_TRUE(progress_.is_complete(first));
  EXPECT_TRUE(progress_.is_complete(second));
}

TEST_F(StreamProgressTest, NothingIsRecordedWithoutANewPoint) {
  device_.submit(kStream);
  progress_.now(kStream);
  progress_.poll();
  progress_.poll();

  EXPECT_EQ(device_.events_recorded(), 1u);
}

TEST_F(StreamProgressTest, APointTakenAfterTheEventNeedsTheNextOne) {
  const StreamPoint before = progress_.now(kStream);
  device_.submit(kStream);
  progress_.poll();
  device_.submit(kStream);
  const StreamPoint after = progress_.now(kStream);
  device_.finish_one(kStream);
  progress_.poll();

  EXPECT_TRUE(progress_.is_complete(before));
  EXPECT_FALSE(progress_.is_complete(after));
}

TEST_F(StreamProgressTest, StreamsDoNotWaitForEachOther) {
  device_.submit(kStream);
  const StreamPoint busy = progress_.now(kStream);
  const StreamPoint idle = progress_.now(kOther);

  progress_.poll();

  EXPECT_FALSE(progress_.is_complete(busy));
  EXPECT_TRUE(progress_.is_complete(idle));
}

TEST_F(StreamProgressTest, NothingIsRecordedOrAskedWhileTheGateIsHeld) {
  const StreamPoint known = progress_.now(kStream);
  progress_.poll();
  const StreamPoint open = progress_.now(kOther);
  gate_.hold();
  device_.begin_capture();

  progress_.poll();
  EXPECT_FALSE(progress_.wait_all());
  EXPECT_TRUE(progress_.is_complete(known));
  EXPECT_FALSE(progress_.is_complete(open));

  device_.end_capture();
  EXPECT_TRUE(gate_.end_hold());
  progress_.poll();
  EXPECT_TRUE(progress_.is_complete(open));
}

TEST_F(StreamProgressTest, WaitingCompletesEveryPointTakenSoFar) {
  device_.submit(kStream);
  device_.submit(kOther);
  const StreamPoint one = progress_.now(kStream);
  progress_.poll();
  const StreamPoint two = progress_.now(kOther);

  EXPECT_TRUE(progress_.wait_all());

  EXPECT_TRUE(progress_.is_complete(one));
  EXPECT_TRUE(progress_.is_complete(two));
  EXPECT_EQ(progress_.pending_events(), 0u);
}

TEST_F(StreamProgressTest, PointsWhoseWaitHasFailedAreWaitedForAgain) {
  set_log_sink([](LogLevel, const std::string&) {});
  device_.submit(kStream);
  const StreamPoint point = progress_.now(kStream);
  device_.while_waiting = [] { throw DeviceError(999, "unknown"); };

  EXPECT_FALSE(progress_.wait_all());
  EXPECT_FALSE(progress_.is_complete(point));
  EXPECT_EQ(progress_.pending_events(), 1u);

  EXPECT_TRUE(progress_.wait_all());
  EXPECT_TRUE(progress_.is_complete(point));
  set_log_sink(nullptr);
}

TEST_F(StreamProgressTest, APointThatAnotherThreadSawCompleteWhileThisOneWaitedStaysComplete) {
  const StreamPoint first = progress_.now(kStream);
  StreamPoint second{kStream, 0};
  device_.while_waiting = [&] {
    second = progress_.now(kStream);
    progress_.poll();
    EXPECT_TRUE(progress_.is_complete(second));
  };

  EXPECT_TRUE(progress_.wait_all());

  EXPECT_GT(second.number, first.number);
  EXPECT_TRUE(progress_.is_complete(first));
  EXPECT_TRUE(progress_.is_complete(second));
}

TEST_F(StreamProgressTest, ARetiredStreamIsNotRecordedOnAgain) {
  device_.submit(kStream);
  const StreamPoint point = progress_.now(kStream);
  progress_.retire(kStream);
  const std::size_t recorded = device_.events_recorded();

  device_.finish(kStream);
  progress_.poll();

  EXPECT_EQ(device_.events_recorded(), recorded);
  EXPECT_TRUE(progress_.is_complete(point));
}

TEST_F(StreamProgressTest, AStreamThatEndsWhileACaptureIsOpenHasALastEvent) {
  const StreamPoint pending = progress_.now(kStream);
  gate_.hold();
  progress_.retire(kStream);
  (void)gate_.end_hold();

  EXPECT_EQ(device_.events_recorded(), 1u);
  progress_.poll();
  EXPECT_EQ(device_.events_recorded(), 1u);
  EXPECT_TRUE(progress_.is_complete(pending));
}

TEST_F(StreamProgressTest, WithoutEventsNoPointIsEverComplete) {
  StreamProgress blind(nullptr, gate_);
  const StreamPoint point = blind.now(kStream);
  blind.poll();

  EXPECT_FALSE(blind.wait_all());
  EXPECT_FALSE(blind.is_complete(point));
}

TEST_F(StreamProgressTest, AStreamThatDoesNotExistAnyMoreDoesNotStopTheOthers) {
  int logged = 0;
  set_log_sink([&](LogLevel, const std::string&) { ++logged; });
  const StreamPoint lost = progress_.now(kStream);
  device_.destroy_stream(kStream);
  const StreamPoint polled = progress_.now(kOther);

  progress_.poll();
  EXPECT_TRUE(progress_.is_complete(polled));
  device_.submit(kOther);
  const StreamPoint waited = progress_.now(kOther);
  EXPECT_FALSE(progress_.wait_all());
  EXPECT_TRUE(progress_.is_complete(waited));

  progress_.poll();
  EXPECT_FALSE(progress_.is_complete(lost));
  EXPECT_EQ(logged, 1);
  set_log_sink(nullptr);
}

TEST_F(StreamProgressTest, AStreamInACaptureThatWasNotAnnouncedIsLeftForLater) {
  device_.begin_foreign_capture(kStream);
  const StreamPoint captured = progress_.now(kStream);
  const StreamPoint other = progress_.now(kOther);

  progress_.poll();
  EXPECT_FALSE(progress_.is_complete(captured));
  EXPECT_TRUE(progress_.is_complete(other));
  EXPECT_FALSE(progress_.wait_all());

  device_.end_foreign_capture(kStream);
  progress_.poll();
  EXPECT_TRUE(progress_.is_complete(captured));
}

TEST_F(StreamProgressTest, AStreamThatHasEndedIsForgottenOnceItsPointsAreComplete) {
  device_.submit(kStream);
  const StreamPoint last = progress_.now(kStream);
  progress_.retire(kStream);
  device_.destroy_stream(kStream);
  EXPECT_EQ(progress_.now(kStream), last) << "what is freed now is behind its last event";
  EXPECT_EQ(progress_.in_source(kOther), kOther);
  progress_.poll();
  EXPECT_FALSE(progress_.is_complete(last));

  device_.finish(kStream);
  progress_.poll();

  EXPECT_TRUE(progress_.is_complete(last));
  const std::size_t recorded = device_.events_recorded();
  const StreamPoint later = progress_.now(kStream);
  progress_.poll();
  EXPECT_TRUE(progress_.is_complete(later));
  EXPECT_EQ(progress_.in_source(kStream), kIdle);
  EXPECT_EQ(device_.events_recorded(), recorded);
  EXPECT_EQ(device_.records_refused(kStream), 0u);
}

TEST_F(StreamProgressTest, AStreamThatEndsWhileItCapturesIsNotForgotten) {
  device_.begin_foreign_capture(kStream);
  const StreamPoint point = progress_.now(kStream);
  progress_.retire(kStream);
  device_.destroy_stream(kStream);

  progress_.poll();

  EXPECT_FALSE(progress_.is_complete(point)) << "no event covers it";
}

// Records as a GPU does while the queue of the stream `full` has no room.
class FullQueue final : public StreamEvents {
 public:
  explicit FullQueue(FakeDevice& device) : device_(device) {}

  std::optional<EventId> record(StreamId stream) override {
    if (stream == full) {
      has_begun.set_value();
      room.get_future().wait_for(std::chrono::seconds(20));
    }
    return device_.record(stream);
  }
  bool is_complete(EventId event) override { return device_.is_complete(event); }
  void wait(EventId event) override { device_.wait(event); }
  void give_back(EventId event) noexcept override { device_.give_back(event); }
  bool exists(StreamId stream) const noexcept override { return device_.exists(stream); }

  std::atomic<StreamId> full{0};
  std::promise<void> has_begun, room;

 private:
  FakeDevice& device_;
};

class FullQueueTest : public StreamProgressTest {
 protected:
  // Polls on another thread, which blocks on the full stream.
  void poll_full_stream() {
    point_ = full_progress_.now(kStream);
    queue_.full = kStream;
    stalled_ = std::async(std::launch::async, [&] { full_progress_.poll(); });
    queue_.has_begun.get_future().wait();
  }
  // Returns true if the function returns on another thread while the first is blocked.
  template <typename Function>
  bool returns(Function function) {
    other_ = std::async(std::launch::async, function);
    return other_.wait_for(std::chrono::seconds(5)) == std::future_status::ready;
  }
  void make_room() {
    queue_.full = 0;
    queue_.room.set_value();
    stalled_.get();
    if (other_.valid()) other_.get();
  }

  FullQueue queue_{device_};
  StreamProgress full_progress_{&queue_, gate_};
  StreamPoint point_;
  std::future<void> stalled_, other_;
};

TEST_F(FullQueueTest, AFullStreamStallsOneThreadThatPolls) {
  poll_full_stream();
  EXPECT_TRUE(returns([&] {
    const StreamPoint other = full_progress_.now(kOther);
    full_progress_.poll();
    EXPECT_TRUE(full_progress_.is_complete(other));
    full_progress_.retire(kOther);
  }));
  make_room();

  full_progress_.poll();
  EXPECT_TRUE(full_progress_.is_complete(point_));
}

// A host function in the queue of the stream may free memory, and so take a point.
TEST_F(FullQueueTest, APointTakenWhileAnEventIsRecordedNeedsTheNextOne) {
  poll_full_stream();
  StreamPoint later;
  EXPECT_TRUE(returns([&] {
    device_.submit(kStream);
    later = full_progress_.now(kStream);
  }));
  make_room();

  EXPECT_GT(later.number, point_.number);
  device_.finish(kStream);
  full_progress_.poll();
  EXPECT_TRUE(full_progress_.is_complete(point_));
  full_progress_.poll();
  EXPECT_TRUE(full_progress_.is_complete(later));
}

// After that the handle may belong to another stream.
TEST_F(FullQueueTest, AStreamIsRetiredOnlyWhenNoThreadRecordsOnIt) {
  poll_full_stream();
  std::atomic<bool> is_retired{false};
  other_ = std::async(std::launch::async, [&] {
    full_progress_.retire(kStream);
    is_retired = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(is_retired);
  make_room();

  EXPECT_TRUE(full_progress_.wait_all());
  EXPECT_TRUE(full_progress_.is_complete(point_));
}

TEST_F(FullQueueTest, APointTakenWhileTheLastEventIsRecordedIsCoveredByIt) {
  const StreamPoint before = full_progress_.now(kStream);
  queue_.full = kStream;
  stalled_ = std::async(std::launch::async, [&] { full_progress_.retire(kStream); });
  queue_.has_begun.get_future().wait();
  StreamPoint during;
  EXPECT_TRUE(returns([&] { during = full_progress_.now(kStream); }));
  make_room();

  full_progress_.poll();
  EXPECT_TRUE(full_progress_.is_complete(before));
  EXPECT_TRUE(full_progress_.is_complete(during));
  EXPECT_EQ(device_.events_recorded(), 1u);
}

// Fails every call, as a device does after an illegal access.
class BrokenEvents final : public StreamEvents {
 public:
  std::optional<EventId> record(StreamId) override { throw DeviceError(700, "illegal address"); }
  bool is_complete(EventId) override { return true; }
  void wait(EventId) override {}
  void give_back(EventId) noexcept override {}
};

TEST_F(StreamProgressTest, ADeviceThatFailsLeavesPointsOpen) {
  set_log_sink([](LogLevel, const std::string&) {});
  BrokenEvents broken;
  StreamProgress progress(&broken, gate_);
  const StreamPoint point = progress.now(kStream);

  progress.poll();
  EXPECT_FALSE(progress.wait_all());
  EXPECT_FALSE(progress.is_complete(point));
  set_log_sink(nullptr);
}

TEST(DriverGateTest, HoldingWaitsUntilThoseInsideHaveLeft) {
  DriverGate gate;
  ASSERT_TRUE(gate.try_enter());
  std::atomic<bool> left{false};
  std::thread inside([&] {
    while (!gate.is_held())
      std::this_thread::yield();
    left = true;
    gate.leave();
  });

  gate.hold();

  EXPECT_TRUE(left);
  inside.join();
  EXPECT_TRUE(gate.end_hold());
}

TEST(DriverGateTest, HoldsAddUp) {
  DriverGate gate;
  gate.hold();
  gate.hold();

  EXPECT_FALSE(gate.end_hold());
  EXPECT_FALSE(gate.try_enter());
  EXPECT_TRUE(gate.end_hold());
  EXPECT_TRUE(gate.try_enter());
  gate.leave();
}

}  // namespace
}  // namespace cgtree
