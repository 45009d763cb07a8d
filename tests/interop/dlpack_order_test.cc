// Waits of an exchange by DLPack, counted on a host device with a trace; and the C exchange API
// from both sides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "interop/device/device_api.h"
#include "interop/device/stream.h"
#include "interop/exchange/dlpack.h"
#include "interop/exchange/dlpack_exchange.h"
#include "interop/exchange/dlpack_tensor.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/stream_synchronization.h"
#include "simulator/host_device.h"
#include "tests/interop/foreign_dlpack.h"
#include "tests/support/call_trace.h"
#include "tests/support/host_slot.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Calls = std::vector<std::string>;

class DlpackOrderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    host_ = make_host_device({});
    trace_.emplace(*host_);
    HostSlot::instance().put(trace_->device());
    device_ = HostSlot::instance().device();
    data_ = empty({8}, DType::kFloat32, device_);
    theirs_.emplace(device_);
    ours_.emplace(device_);
    trace_->clear();
  }
  void TearDown() override {
    data_ = Tensor();
    theirs_.reset();
    ours_.reset();
    HostSlot::instance().put(host_device_api());
  }

  GraphAPI& graphs() { return *trace_->device().graphs(); }
  static std::intptr_t number(StreamRef stream) {
    return static_cast<std::intptr_t>(stream.handle());
  }
  Calls order() const {
    Calls calls;
    for (const TracedCall& call : trace_->calls()) {
      const bool is_work = call.kind == CallKind::kWork || call.kind == CallKind::kSynchronize;
      if (is_work) calls.push_back(std::string(call.function) + " " + name(call.stream));
    }
    return calls;
  }
  std::string name(StreamHandle handle) const {
    if (handle == theirs_->ref().handle()) return "theirs";
    if (handle == ours_->ref().handle()) return "ours";
    return handle == StreamHandle::kLegacy ? "legacy" : "other";
  }
  void end_capture(StreamRef stream, Code wanted = Code::kSuccess) {
    GraphHandle graph = GraphHandle::kNull;
    EXPECT_EQ(graphs().end_capture(stream.handle(), &graph), wanted);
    if (graph != GraphHandle::kNull) check(graphs().destroy_graph(graph), "destroy");
  }

  std::unique_ptr<DeviceAPI> host_;
  std::optional<CallTrace> trace_;
  Device device_;
  Tensor data_;
  std::optional<Stream> theirs_;
  std::optional<Stream> ours_;
};

// T-DL 13 and 15.
// Acceptance: dlpack 15.
TEST_F(DlpackOrderTest, TheConsumersStreamWaitsForAllThatIsPendingAndTheHostDoesNot) {
  const StreamScope scope(*ours_);

  (void)to_dlpack(data_, {.stream = number(*theirs_)});

  EXPECT_EQ(order(), (Calls{"record_event legacy", "wait_event theirs", "record_event ours",
                            "wait_event theirs"}));
}

// An import on any device may be ordered by a stream of a device other than its memory's.
TEST_F(DlpackOrderTest, TheConsumersStreamWaitsForAStreamOfAnotherDevice) {
  const Device other{device_.type, 1};
  const Tensor there = empty({8}, DType::kFloat32, other);
  const Stream reader(other);
  ForeignVersioned foreign(there.data(), to_dlpack_device(other), {8}, {1});
  const Tensor tensor = from_dlpack(&foreign.managed, {.consumer = *ours_, .on_any_device = true});
  trace_->clear();

  (void)to_dlpack(tensor, {.stream = number(reader)});

  EXPECT_EQ(order(), (Calls{"record_event ours", "wait_event other"}));
}

// T-DL 13.
// Acceptance: dlpack 13.
TEST_F(DlpackOrderTest, StreamNumbersMeanWhatTheStandardSays) {
  (void)to_dlpack(data_, {.stream = -1});
  EXPECT_EQ(order(), Calls{});
  (void)to_dlpack(data_, {.stream = 1});
  EXPECT_EQ(order(), Calls{}) << "empty() made it on the legacy stream";
  (void)to_dlpack(data_);
  EXPECT_EQ(order(), Calls{});
  (void)to_dlpack(data_, {.stream = 2});
  EXPECT_EQ(order(), (Calls{"record_event legacy", "wait_event other"}));
  EXPECT_THAT([&] { (void)to_dlpack(data_, {.stream = 0}); },
              ThrowsMessage<BoundaryError>(HasSubstr("stream is 0, which could mean")));
  EXPECT_THAT([&] { (void)to_dlpack(data_, {.stream = -2}); },
              ThrowsMessage<BoundaryError>(HasSubstr("stream is -2")));
}

// Acceptance: dlpack 13.
TEST_F(DlpackOrderTest, TheHostsMemoryHasNoStreamsAndTheHostWaits) {
  const Tensor host = empty({4}, DType::kFloat32, Device::host());

  EXPECT_THAT([&] { (void)to_dlpack(host, {.stream = 1}); },
              ThrowsMessage<BoundaryError>(HasSubstr("has no streams: expected None")));
  const DlpackTensor copy = to_dlpack(data_, {.device = Device::host()});
  EXPECT_EQ(order(), (Calls{"copy legacy", "synchronize_stream legacy"}));
}

TEST_F(DlpackOrderTest, AnImportDoesNotWaitSinceTheProducerWasTold) {
  ForeignVersioned foreign(data_.data(), to_dlpack_device(device_), {8}, {1});
  { const Tensor tensor = from_dlpack(&foreign.managed, {.consumer = *ours_}); }

  EXPECT_EQ(order(), Calls{});
  EXPECT_EQ(foreign.deleted, 1);
}

// T-DL 16.
// Acceptance: dlpack 16.
TEST_F(DlpackOrderTest, InACaptureOnlyTheCapturesOwnStreamIsTaken) {
  const StreamScope scope(*ours_);
  check(graphs().begin_capture(ours_->ref().handle(), CaptureMode::kGlobal), "begin");
  trace_->clear();

  (void)to_dlpack(data_);
  (void)to_dlpack(data_, {.stream = -1});
  (void)to_dlpack(data_, {.stream = number(*ours_)});
  EXPECT_THROW((void)to_dlpack(data_, {.stream = number(*theirs_)}), CaptureError);
  EXPECT_THROW((void)to_dlpack(data_, {.stream = -1, .copy = true}), CaptureError);

  EXPECT_EQ(order(), Calls{});
  end_capture(*ours_);
}

// The exchange API of a library with objects of type ForeignVersioned and the current stream
// `s_current`.
StreamHandle s_current = StreamHandle::kNull;
int s_answer = 0;

dlpack::Exchange foreign_exchange() {
  dlpack::Exchange exchange = {};
  exchange.header.version = {1, 3};
  exchange.from_object = [](void* object, dlpack::ManagedVersioned** out) {
    if (s_answer == 0) *out = &static_cast<ForeignVersioned*>(object)->managed;
    return s_answer;
  };
  exchange.current_stream = [](std::int32_t, std::int32_t, void** out) {
    *out = reinterpret_cast<void*>(s_current);
    return 0;
  };
  return exchange;
}

// T-DL 17, as a consumer.
// Acceptance: dlpack 17.
TEST_F(DlpackOrderTest, ThroughTheExchangeApiBothDirectionsAreOrdered) {
  const dlpack::Exchange exchange = foreign_exchange();
  s_answer = 0;
  s_current = theirs_->ref().handle();
  ForeignVersioned foreign(data_.data(), to_dlpack_device(device_), {8}, {1});
  {
    const Tensor tensor = from_exchange(exchange, &foreign, {.consumer = *ours_});
    EXPECT_EQ(order(), (Calls{"record_event theirs", "wait_event ours"}));
    EXPECT_EQ(producer_of(tensor), theirs_->ref());
    trace_->clear();
  }
  EXPECT_EQ(order(), (Calls{"record_event ours", "wait_event theirs"}));
  EXPECT_EQ(foreign.deleted, 1);
  trace_->clear();

  s_current = StreamHandle::kNull;
  { const Tensor tensor = from_exchange(exchange, &foreign, {.consumer = *ours_}); }
  EXPECT_THAT(order(), ::testing::Contains("record_event legacy")) << "null is the default stream";
  s_answer = -1;
  EXPECT_THAT([&] { (void)from_exchange(exchange, &foreign, {}); },
              ThrowsMessage<BoundaryError>(HasSubstr("the other library refused")));
  EXPECT_EQ(foreign.deleted, 2);
}

TEST_F(DlpackOrderTest, ThroughTheExchangeApiATensorOfAnotherMajorIsOnlyDeleted) {
  const dlpack::Exchange exchange = foreign_exchange();
  s_answer = 0;
  ForeignVersioned foreign(data_.data(), to_dlpack_device(device_), {8}, {1});
  foreign.managed.version.major = 2;

  EXPECT_THROW((void)from_exchange(exchange, &foreign, {}), BoundaryError);

  EXPECT_EQ(foreign.deleted, 1);
  EXPECT_EQ(order(), Calls{});
}

TEST(DlpackExchangeTest, AnOlderTableIsFoundBehindANewerOne) {
  dlpack::Exchange ours = foreign_exchange();
  dlpack::ExchangeHeader newer{{2, 0}, &ours.header};
  dlpack::ExchangeHeader alone{{2, 0}, nullptr};
  dlpack::ExchangeHeader older{{0, 8}, nullptr};

  EXPECT_EQ(find_exchange(&newer), &ours);
  EXPECT_EQ(find_exchange(&ours.header), &ours);
  EXPECT_EQ(find_exchange(&alone), nullptr);
  EXPECT_EQ(find_exchange(&older), nullptr);
  EXPECT_EQ(find_exchange(nullptr), nullptr);
}

struct Error {
  std::string kind;
  std::string message;
  int times = 0;
};

void set_error(void* context, const char* kind, const char* message) {
  auto* const error = static_cast<Error*>(context);
  *error = {kind, message, error->times + 1};
}

// T-DL 17, as a producer.
// Acceptance: dlpack 17.
TEST_F(DlpackOrderTest, OurAllocatorGivesWhatEmptyGivesAndReportsThroughTheCallback) {
  const dlpack::Exchange ours = make_exchange(nullptr, nullptr, nullptr);
  EXPECT_EQ(ours.header.version.major, 1u);
  ForeignVersioned prototype(nullptr, to_dlpack_device(device_), {2, 3}, {});
  prototype.managed.tensor.strides = nullptr;  // not to be read
  dlpack::ManagedVersioned* out = nullptr;
  Error error;

  EXPECT_EQ(ours.allocate(&prototype.managed.tensor, &out, &error, &set_error), 0);

  const Tensor tensor = from_dlpack(out, {.consumer = *ours_});
  EXPECT_EQ(tensor.shape(), Shape({2, 3}));
  EXPECT_EQ(error.times, 0);
  out = nullptr;
  prototype.shape[0] = -1;
  EXPECT_EQ(ours.allocate(&prototype.managed.tensor, &out, &error, &set_error), -1);
  EXPECT_EQ(error.kind, "BufferError");
  prototype.shape[0] = std::int64_t{1} << 50;
  EXPECT_EQ(ours.allocate(&prototype.managed.tensor, &out, &error, &set_error), -1);
  EXPECT_EQ(error.kind, "MemoryError");
  EXPECT_EQ(error.times, 2);
  EXPECT_EQ(out, nullptr);
}

// Acceptance: dlpack 17.
TEST_F(DlpackOrderTest, OurCurrentStreamIsTheThreads) {
  const dlpack::Exchange ours = make_exchange(nullptr, nullptr, nullptr);
  const dlpack::DeviceRef device = to_dlpack_device(device_);
  void* stream = this;
  EXPECT_EQ(ours.current_stream(device.type, device.id, &stream), 0);
  EXPECT_EQ(stream, nullptr);
  const StreamScope scope(*ours_);
  EXPECT_EQ(ours.current_stream(device.type, device.id, &stream), 0);
  EXPECT_EQ(stream, ours_->ref().native());
  EXPECT_EQ(ours.current_stream(dlpack::kCpu, 0, &stream), 0);
  EXPECT_EQ(stream, nullptr);
}

}  // namespace
}  // namespace cgtree::testing
