// The waits of imports and exports through C, counted on a host device with a trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "interop/device/device_api.h"
#include "interop/device/stream.h"
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
  // Returns the calls of an import, and those of the last release.
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
  static constexpr std::int64_t kEight = 8;
  std::unique_ptr<DeviceAPI> host_;
  std::optional<CallTrace> trace_;
  Device device_;
  OwnedTensor data_;
  std::optional<Stream> producer_, consumer_;
  cgt_stream c_consumer_ = {};
};

TEST_F(CApiOrderTest, TheConsumerWaitsAtTheImportAndTheProducerAtTheLastRelease) {
  const auto [before, after] = around(*producer_);
  EXPECT_EQ(before, (Calls{"record_event producer", "wait_event consumer"}));
  EXPECT_EQ(after, (Calls{"record_event consumer", "wait_event producer"}));
}

TEST_F(CApiOrderTest, TheCallerMayAskForAWaitOfTheHostOrForNone) {
  EXPECT_EQ(around(*producer_, CGT_SYNC_SYNCHRONIZE).first, Calls{"synchronize_stream producer"});
  EXPECT_EQ(around(*producer_, CGT_SYNC_IGNORE), (std::pair{Calls{}, Calls{}}));
  EXPECT_EQ(around(*producer_, CGT_SYNC_ENQUEUE), (std::pair{Calls{}, Calls{}}));
  EXPECT_EQ(around(*consumer_), (std::pair{Calls{}, Calls{}}));
  EXPECT_EQ(around(std::nullopt), (std::pair{Calls{}, Calls{}}));
}

TEST_F(CApiOrderTest, AnExportJoinsAllStreamsInTheOneItNames) {
  const cgt_stream pending[] = {c_stream(*producer_), c_consumer_};
  const cgt_cai_export_options options = {
      .struct_size = sizeof(options), .flags = 0, .pending = pending, .pending_count = 2};
  EXPECT_EQ(exported(&options).stream, 1u);
  EXPECT_EQ(order(), (Calls{"record_event producer", "wait_event legacy", "record_event consumer",
                            "wait_event legacy"}));
}

TEST_F(CApiOrderTest, WithNothingPendingThereIsNoStream) {
  const cgt_cai_export_options idle = {.struct_size = sizeof(idle), .flags = CGT_CAI_EXPORT_IDLE};
  EXPECT_EQ(exported(&idle).flags & CGT_CAI_HAS_STREAM, 0u);
  EXPECT_EQ(order(), Calls{});
}

// The device refuses a destroyed stream.
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
