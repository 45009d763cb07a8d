// The allocator's events on each available device.
#include "allocator/device/device_streams.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "caching/device_allocator.h"
#include "interop/device/graph_api.h"
#include "interop/device/stream_identity.h"
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

  // Enqueues work that ends when `open_` is set. On the host device it ends before the launch
  // returns.
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
  const EventId first = *events_->record(id());
  events_->give_back(first);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(events_->record(id()), first);
    events_->give_back(first);
  }
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

TEST_P(DeviceStreamEventsTest, EventsAreOfTheDeviceOfTheStream) {
  const EventId first = *events_->record(id());
  events_->give_back(first);
  EXPECT_THROW((void)events_->record(0), DeviceError);
  const Device other{GetParam().device.type, 1};
  if (!GetParam().api->has_device(1)) return;
  const Stream stream(other);
  const EventId event = *events_->record(stream_id(stream));

  events_->wait(event);

  EXPECT_TRUE(events_->is_complete(event));
  EXPECT_NE(event, first);
  events_->give_back(event);
}

TEST_P(DeviceStreamEventsTest, AStreamThatHasEndedIsNotNamedToTheDevice) {
  std::optional<Stream> stream(GetParam().device);
  const StreamId ended = stream_id(*stream);
  EXPECT_TRUE(events_->exists(ended));
  stream.reset();
  const Stream later(GetParam().device);  // may have the handle

  EXPECT_FALSE(events_->exists(ended));
  EXPECT_THROW((void)events_->record(ended), DeviceError);
}

class StreamIdentityTest : public DeviceStreamEventsTest {
 protected:
  StreamHandle create() {
    StreamHandle handle = StreamHandle::kNull;
    check(bench_->api.create_stream(GetParam().device.id, StreamKind::kNonBlocking, &handle),
          "create");
    return handle;
  }
  void destroy(StreamHandle handle) { check(bench_->api.destroy_stream(handle), "destroy"); }
  // Destroys the stream, and creates streams until one gets its handle.
  void recycle(StreamHandle handle) {
    destroy(handle);
    std::vector<StreamHandle> others;
    for (StreamHandle made = create(); made != handle; made = create()) {
      others.push_back(made);
      ASSERT_LT(others.size(), 64u) << "no later stream has the handle";
    }
    for (const StreamHandle other : others)
      destroy(other);
  }
};

TEST_P(StreamIdentityTest, ALaterStreamWithTheHandleIsAnother) {
  const StreamHandle handle = create();
  const StreamIdentity first = identity_of(ref(handle));
  EXPECT_EQ(identity_of(ref(handle)), first);
  EXPECT_EQ(recent_identity_of(ref(handle)), first);
  EXPECT_EQ(find_stream(first), ref(handle));

  retire_stream(ref(handle));
  recycle(handle);

  EXPECT_EQ(find_stream(first), StreamRef());
  EXPECT_NE(recent_identity_of(ref(handle)), first);
  EXPECT_NE(identity_of(ref(handle)), first);
  retire_stream(ref(handle));
  destroy(handle);
}

TEST_P(StreamIdentityTest, AStreamThatWasNotRetiredIsFoundToBeGone) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  const StreamHandle handle = create();
  const StreamIdentity first = identity_of(ref(handle));

  recycle(handle);

  const StreamIdentity later = identity_of(ref(handle));
  EXPECT_NE(later, first);
  EXPECT_EQ(find_stream(first), StreamRef());
  EXPECT_EQ(find_stream(later), ref(handle));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("stream_not_retired"), std::string::npos) << lines[0];
  set_log_sink(nullptr);
  retire_stream(ref(handle));
  destroy(handle);
}

TEST_P(StreamIdentityTest, ACaptureSurvivesThatItsStreamIsNamed) {
  for (const bool was_named : {false, true}) {
    const StreamHandle handle = create();
    const StreamIdentity before = was_named ? identity_of(ref(handle)) : StreamIdentity::kNone;
    check(bench_->graphs.begin_capture(handle, CaptureMode::kRelaxed), "begin");

    const StreamIdentity during = identity_of(ref(handle));
    (void)identity_of(ref(StreamHandle::kLegacy));
    (void)identity_of(ref(StreamHandle::kPerThread));

    GraphHandle graph = GraphHandle::kNull;
    EXPECT_EQ(bench_->graphs.end_capture(handle, &graph), Code::kSuccess);
    check(bench_->graphs.destroy_graph(graph), "destroy");
    EXPECT_EQ(identity_of(ref(handle)), during);
    if (was_named) {
      EXPECT_EQ(during, before);
    }
    retire_stream(ref(handle));
    destroy(handle);
  }
}

TEST_P(StreamIdentityTest, DefaultStreamsAreOnePerDeviceAndOnePerThread) {
  EXPECT_EQ(identity_of(ref(StreamHandle::kNull)), identity_of(ref(StreamHandle::kLegacy)));
  const StreamIdentity own = identity_of(ref(StreamHandle::kPerThread));
  EXPECT_EQ(identity_of(ref(StreamHandle::kPerThread)), own);
  std::thread([&] { EXPECT_NE(identity_of(ref(StreamHandle::kPerThread)), own); }).join();
  EXPECT_EQ(identity_of(StreamRef()), StreamIdentity::kNone);
  if (!GetParam().api->has_device(1)) return;
  const StreamRef other(*GetParam().api, {GetParam().device.type, 1}, StreamHandle::kLegacy);
  EXPECT_NE(identity_of(other), identity_of(ref(StreamHandle::kLegacy)));
}

// A caller may know a stream's handle without its device.
TEST_P(StreamIdentityTest, TellsOfWhichDeviceTheStreamIs) {
  if (!GetParam().api->has_device(1)) return;
  StreamHandle handle = StreamHandle::kNull;
  check(bench_->api.create_stream(1, StreamKind::kNonBlocking, &handle), "create");

  EXPECT_EQ(find_stream(identity_of(ref(handle))).device().id, 1);

  retire_stream(ref(handle));
  destroy(handle);
}

INSTANTIATE_TEST_SUITE_P(Devices, StreamIdentityTest,
                         ::testing::ValuesIn(cgtree::testing::devices_under_test()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Devices, DeviceStreamEventsTest,
                         ::testing::ValuesIn(cgtree::testing::devices_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree
