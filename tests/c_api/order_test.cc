// The waits of imports and exports through C, counted on a host device with a trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "interop/device/stream.h"
#include "interop/exchange/dlpack.h"
#include "simulator/host_device.h"
#include "tests/c_api/c_tools.h"
#include "tests/support/call_trace.h"
#include "tests/support/host_slot.h"

namespace cgtree::testing {
namespace {

using Calls = std::vector<std::string>;

class CApiOrderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    host_ = make_host_device({});
    trace_.emplace(*host_);
    HostSlot::instance().put(trace_->device());
    device_ = HostSlot::instance().device();
    producer_.emplace(device_);
    consumer_.emplace(device_);
    data_ = make_tensor(device_, {8});
    c_consumer_ = c_stream(*consumer_);
    trace_->clear();
  }
  void TearDown() override {
    data_ = OwnedTensor();
    producer_.reset();
    consumer_.reset();
    HostSlot::instance().put(host_device_api());
  }

  GraphAPI& graphs() { return *trace_->device().graphs(); }
  cgt_cai array(std::optional<StreamRef> stream) {
    return {.struct_size = sizeof(cgt_cai),
            .flags = stream ? std::uint32_t{CGT_CAI_HAS_STREAM} : 0,
            .version = 3,
            .ndim = 1,
            .shape = &kEight,
            .strides = nullptr,
            .data = reinterpret_cast<std::uintptr_t>(info_of(data_).data),
            .stream = stream ? static_cast<std::uint64_t>(stream->handle()) : 0,
            .typestr = "<f4"};
  }
  cgt_status import(OwnedTensor& out, std::optional<StreamRef> producer,
                    cgt_sync_policy sync = CGT_SYNC_DEFAULT) {
    const cgt_cai foreign = array(producer);
    const cgt_cai_import_options options = {
        .struct_size = sizeof(options), .sync = sync, .consumer = &c_consumer_};
    return cgt_tensor_from_cai(&foreign, nullptr, nullptr, &options, out.out());
  }
  // The calls that an import, and then the last release, make.
  std::pair<Calls, Calls> around(std::optional<StreamRef> producer,
                                 cgt_sync_policy sync = CGT_SYNC_DEFAULT) {
    OwnedTensor tensor;
    trace_->clear();
    EXPECT_DONE(import(tensor, producer, sync));
    const Calls before = order();
    trace_->clear();
    tensor.reset();
    return {before, order()};
  }
  cgt_cai exported(const cgt_cai_export_options* options = nullptr) {
    cgt_cai out = {};
    out.struct_size = sizeof(out);
    EXPECT_DONE(cgt_tensor_to_cai(data_, options, &out));
    return out;
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
    if (producer_ && handle == producer_->ref().handle()) return "producer";
    if (consumer_ && handle == consumer_->ref().handle()) return "consumer";
    return handle == StreamHandle::kLegacy ? "legacy" : "other";
  }
  void end_capture() {
    GraphHandle graph = GraphHandle::kNull;
    EXPECT_EQ(graphs().end_capture(consumer_->ref().handle(), &graph), Code::kSuccess);
    check(graphs().destroy_graph(graph), "destroy");
  }
  cgt_capture_state capture_state() {
    CaptureInfo info;
    check(graphs().capture_info(consumer_->ref().handle(), &info), "capture_info");
    return static_cast<cgt_capture_state>(info.status);
  }

  static constexpr std::int64_t kEight = 8;
  std::unique_ptr<DeviceAPI> host_;
  std::optional<CallTrace> trace_;
  Device device_;
  OwnedTensor data_;
  std::optional<Stream> producer_, consumer_;
  cgt_stream c_consumer_ = {};
};

// T-CAI 17, 21 and 22.
// Acceptance: c cai_17.
TEST_F(CApiOrderTest, TheConsumerWaitsAtTheImportAndTheProducerAtTheLastRelease) {
  const auto [before, after] = around(*producer_);
  EXPECT_EQ(before, (Calls{"record_event producer", "wait_event consumer"}));
  EXPECT_EQ(after, (Calls{"record_event consumer", "wait_event producer"}));
}

// T-CAI 18 and 19.
// Acceptance: c cai_18.
TEST_F(CApiOrderTest, TheCallerMayAskForAWaitOfTheHostOrForNone) {
  EXPECT_EQ(around(*producer_, CGT_SYNC_SYNCHRONIZE).first, Calls{"synchronize_stream producer"});
  EXPECT_EQ(around(*producer_, CGT_SYNC_IGNORE), (std::pair{Calls{}, Calls{}}));
  EXPECT_EQ(around(*producer_, CGT_SYNC_ENQUEUE), (std::pair{Calls{}, Calls{}}));
  EXPECT_EQ(around(*consumer_), (std::pair{Calls{}, Calls{}}));
  EXPECT_EQ(around(std::nullopt), (std::pair{Calls{}, Calls{}}));
}

// T-CAI 20 and 35.
// Acceptance: c cai_20.
TEST_F(CApiOrderTest, ACallOfARecordedStepHasOneEdgePerProducerAndDirection) {
  const cgt_device where = c_device(device_);
  const Stream second(device_);
  OwnedContext context;
  OwnedFunction function;
  EXPECT_DONE(cgt_context_create(where, nullptr, context.out()));
  const cgt_step step = {
      sizeof(step), 1,
      [](void*, const cgt_tensor* inputs, std::size_t, cgt_tensor* outputs,
         std::size_t) -> cgt_status {
        const std::int64_t size = 8;
        EXPECT_DONE(cgt_tensor_empty(CGT_FLOAT32, 1, &size, nullptr, &outputs[0]));
        return cgt_tensor_copy(outputs[0], inputs[0], nullptr);
      },
      nullptr, nullptr};
  EXPECT_DONE(cgt_compile(context, "take", &step, nullptr, function.out()));
  OwnedTensor a, b, c;
  EXPECT_DONE(import(a, *producer_));
  EXPECT_DONE(import(b, *producer_));
  EXPECT_DONE(import(c, second));
  const cgt_tensor inputs[] = {a, b, c};
  for (int i = 0; i < 3; ++i) {
    OwnedTensor out;
    trace_->clear();
    EXPECT_DONE(cgt_call(function, inputs, 3, out.out(), 1));
  }
  EXPECT_EQ(trace_->count("launch"), 1u);
  EXPECT_EQ(trace_->count("wait_event"), 4u);  // two producers, both ways
  EXPECT_EQ(trace_->count("synchronize_stream"), 0u);

  a.reset();
  OwnedTensor out;
  EXPECT_FAILS(cgt_call(function, inputs, 3, out.out(), 1), CGT_INVALID_HANDLE, "input 0 is 0x");
}

// T-CAI 23.
// Acceptance: c cai_23.
TEST_F(CApiOrderTest, AnExportJoinsAllStreamsInTheOneItNames) {
  const cgt_stream pending[] = {c_stream(*producer_), c_consumer_};
  const cgt_cai_export_options options = {
      .struct_size = sizeof(options), .flags = 0, .pending = pending, .pending_count = 2};
  EXPECT_EQ(exported(&options).stream, 1u);
  EXPECT_EQ(order(), (Calls{"record_event producer", "wait_event legacy", "record_event consumer",
                            "wait_event legacy"}));
}

// T-CAI 24.
// Acceptance: c cai_24.
TEST_F(CApiOrderTest, WithNothingPendingThereIsNoStream) {
  const cgt_cai_export_options idle = {.struct_size = sizeof(idle), .flags = CGT_CAI_EXPORT_IDLE};
  EXPECT_EQ(exported(&idle).flags & CGT_CAI_HAS_STREAM, 0u);
  EXPECT_EQ(order(), Calls{});
}

// T-CAI 26.
// Acceptance: c cai_26.
TEST_F(CApiOrderTest, TheEnvironmentMayTurnBothSidesOff) {
  setenv("CGTREE_CUDA_ARRAY_INTERFACE_SYNC", "0", 1);
  EXPECT_EQ(around(*producer_).first, Calls{});
  EXPECT_EQ(around(*producer_, CGT_SYNC_SYNCHRONIZE).first, Calls{"synchronize_stream producer"});
  unsetenv("CGTREE_CUDA_ARRAY_INTERFACE_SYNC");
  setenv("CGTREE_CUDA_ARRAY_INTERFACE_EXPORT_VERSION", "2", 1);
  EXPECT_EQ(exported().version, 2);
  unsetenv("CGTREE_CUDA_ARRAY_INTERFACE_EXPORT_VERSION");
}

// T-CAI 27.
// Acceptance: c cai_27.
TEST_F(CApiOrderTest, TheTwoDefaultStreamsAreTwoStreams) {
  EXPECT_EQ(around(StreamRef(device_, StreamHandle::kLegacy)).first,
            (Calls{"record_event legacy", "wait_event consumer"}));
  OwnedTensor own;
  EXPECT_DONE(import(own, StreamRef(device_, StreamHandle::kPerThread)));
  trace_->clear();
  std::thread([&] { own.reset(); }).join();
  EXPECT_EQ(order(), Calls{"synchronize_stream consumer"});
}

// T-CAI 28, 29, 30 and 32.
// Acceptance: c cai_28.
TEST_F(CApiOrderTest, InACaptureAForeignProducerIsRefusedBeforeTheCaptureIsHurt) {
  check(graphs().begin_capture(consumer_->ref().handle(), CaptureMode::kGlobal), "begin");
  EXPECT_EQ(around(*consumer_), (std::pair{Calls{}, Calls{}}));
  OwnedTensor none;
  trace_->clear();
  for (const cgt_sync_policy sync : {CGT_SYNC_EVENT_WAIT, CGT_SYNC_SYNCHRONIZE, CGT_SYNC_ENQUEUE}) {
    EXPECT_FAILS(import(none, *producer_, sync), CGT_CAPTURE_FAILED,
                 "import it before the capture");
    EXPECT_EQ(last_error().cuda_code, 905);
  }
  EXPECT_EQ(order(), Calls{});
  EXPECT_EQ(capture_state(), CGT_CAPTURE_ACTIVE);
  EXPECT_DONE(cgt_stream_wait(c_stream(*producer_), c_consumer_));  // forks
  trace_->clear();
  EXPECT_EQ(around(*producer_).first, (Calls{"record_event producer", "wait_event consumer"}));
  end_capture();

  check(graphs().begin_capture(consumer_->ref().handle(), CaptureMode::kGlobal), "begin");
  EXPECT_FAILS(cgt_stream_wait(c_consumer_, c_stream(*producer_)), CGT_CAPTURE_FAILED, "");
  EXPECT_EQ(capture_state(), CGT_CAPTURE_INVALIDATED) << "why the rule is there";
  GraphHandle graph = GraphHandle::kNull;
  EXPECT_EQ(graphs().end_capture(consumer_->ref().handle(), &graph),
            Code::kStreamCaptureInvalidated);
  (void)graphs().take_last_error();
}

// T-CAI 31.
// Acceptance: c cai_31.
TEST_F(CApiOrderTest, WhileTheStreamCapturesNothingIsExportedToWaitFor) {
  check(graphs().begin_capture(consumer_->ref().handle(), CaptureMode::kGlobal), "begin");
  trace_->clear();
  {
    const StreamScope scope(*consumer_);
    EXPECT_EQ(exported().flags & CGT_CAI_HAS_STREAM, 0u);
  }
  EXPECT_EQ(order(), Calls{});
  end_capture();
}

// A stream that was destroyed is refused by its device.
TEST_F(CApiOrderTest, ADeadStreamIsNamed) {
  cgt_stream stream = {};
  EXPECT_DONE(cgt_stream_create(c_device(device_), 0, &stream));
  EXPECT_DONE(cgt_stream_destroy(stream));
  EXPECT_FAILS(cgt_stream_destroy(stream), CGT_DEVICE_FAILED, "cudaErrorInvalidResourceHandle");
  EXPECT_EQ(last_error().cuda_code, 400);
  EXPECT_FAILS(cgt_stream_synchronize(stream), CGT_DEVICE_FAILED, "400");
  OwnedTensor none;
  EXPECT_FAILS(import(none, StreamRef(device_, static_cast<StreamHandle>(stream.native))),
               CGT_DEVICE_FAILED, "400");
}

}  // namespace
}  // namespace cgtree::testing
