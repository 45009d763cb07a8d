// Waits of an import and an export: counted on a host device with a trace, and seen in the data on
// every device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "base/error.h"
#include "interop/device/device_api.h"
#include "interop/device/stream.h"
#include "interop/exchange/cuda_array_interface.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/stream_synchronization.h"
#include "simulator/host_device.h"
#include "tests/support/call_trace.h"
#include "tests/support/device_bench.h"
#include "tests/support/host_slot.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Registers a device with a trace, whose work runs in any order that streams allow.
class CaiOrderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::uint64_t seed = std::random_device()();
    RecordProperty("seed", std::to_string(seed));
    host_ = make_host_device({.executor = HostExecutor::kRandom, .seed = seed});
    trace_.emplace(*host_);
    HostSlot::instance().put(trace_->device());
    device_ = HostSlot::instance().device();
    data_ = empty({8}, DType::kFloat32, device_);
    producer_.emplace(device_);
    consumer_.emplace(device_);
    trace_->clear();
  }
  void TearDown() override {
    data_ = Tensor();
    producer_.reset();
    consumer_.reset();
    HostSlot::instance().put(host_device_api());
  }

  GraphAPI& graphs() { return *trace_->device().graphs(); }
  CudaArrayInterface array(std::optional<StreamRef> stream) const {
    CudaArrayInterface array{.shape = {8}, .type = type_string_of(DType::kFloat32)};
    array.data = data_.address();
    if (stream) array.stream = static_cast<std::uintptr_t>(stream->handle());
    return array;
  }
  Tensor import(StreamRef producer, std::optional<SyncPolicy> sync = {}) {
    return from_cuda_array_interface(array(producer), nullptr,
                                     {.consumer = consumer_->ref(), .sync = sync});
  }
  // Returns the calls of work and synchronization, with their streams.
  std::vector<std::string> order() const {
    std::vector<std::string> calls;
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
  using Calls = std::vector<std::string>;

  std::unique_ptr<DeviceAPI> host_;
  std::optional<CallTrace> trace_;
  Device device_;
  Tensor data_;
  std::optional<Stream> producer_;
  std::optional<Stream> consumer_;
};

// T-CAI 17 and 22.
// Acceptance: cai 17.
TEST_F(CaiOrderTest, ByDefaultTheConsumerWaitsAtTheImportAndTheProducerAtTheLastRelease) {
  Tensor tensor = import(*producer_);
  EXPECT_EQ(order(), (Calls{"record_event producer", "wait_event consumer"}));
  EXPECT_EQ(tensor.storage()->stream(), consumer_->ref());
  EXPECT_EQ(producer_of(tensor), producer_->ref());
  trace_->clear();

  const Tensor other = tensor;
  tensor = Tensor();
  EXPECT_EQ(order(), Calls{});
  const_cast<Tensor&>(other) = Tensor();

  EXPECT_EQ(order(), (Calls{"record_event consumer", "wait_event producer"}));
}

// Long-lived memory, such as weights, is read on many streams that end.
TEST_F(CaiOrderTest, StreamsThatUseAnImportAndEndLeaveNoEventsBehind) {
  const Tensor tensor = import(*producer_);
  std::size_t most = 0;
  for (int i = 0; i < 100; ++i) {
    const Stream reader(device_);
    note_use(tensor.storage(), reader);
    reader.synchronize();
    most = std::max(most, trace_->count("create_event") - trace_->count("destroy_event"));
  }
  EXPECT_LE(most, 5u);
}

TEST_F(CaiOrderTest, StreamsThatWereToldOfAreWaitedForAtTheLastRelease) {
  const Stream third(device_);
  Tensor tensor = import(*producer_);
  note_use(tensor.storage(), third);
  note_use(tensor.storage(), third);
  note_use(tensor.storage(), *producer_);
  trace_->clear();

  tensor = Tensor();

  EXPECT_EQ(order(), (Calls{"record_event consumer", "wait_event producer", "record_event other",
                            "wait_event producer"}));
}

// T-CAI 18.
// Acceptance: cai 18.
TEST_F(CaiOrderTest, SynchronizeBlocksTheHostOnce) {
  const Tensor tensor = import(*producer_, SyncPolicy::kSynchronize);

  EXPECT_EQ(order(), Calls{"synchronize_stream producer"});
}

// T-CAI 19.
// Acceptance: cai 19.
TEST_F(CaiOrderTest, IgnoreDoesNothingAtAll) {
  { const Tensor tensor = import(*producer_, SyncPolicy::kIgnore); }

  EXPECT_EQ(order(), Calls{});
}

TEST_F(CaiOrderTest, EnqueueMakesTheProducersStreamTheTensors) {
  {
    const Tensor tensor = import(*producer_, SyncPolicy::kEnqueue);
    EXPECT_EQ(tensor.storage()->stream(), producer_->ref());
  }
  EXPECT_EQ(order(), Calls{});
}

TEST_F(CaiOrderTest, OnOneStreamAndWithoutAStreamNothingIsDone) {
  { const Tensor same = import(*consumer_); }
  { const Tensor none = from_cuda_array_interface(array({}), nullptr, {.consumer = *consumer_}); }

  EXPECT_EQ(order(), Calls{});
}

// T-CAI 26.
// Acceptance: cai 26.
TEST_F(CaiOrderTest, TheEnvironmentMayTurnBothSidesOff) {
  setenv("CGTREE_CUDA_ARRAY_INTERFACE_SYNC", "0", 1);
  { const Tensor tensor = import(*producer_); }
  EXPECT_EQ(order(), Calls{});
  const Tensor tensor = import(*producer_, SyncPolicy::kSynchronize);
  EXPECT_EQ(order(), Calls{"synchronize_stream producer"}) << "what a call says comes first";
  unsetenv("CGTREE_CUDA_ARRAY_INTERFACE_SYNC");

  setenv("CGTREE_CUDA_ARRAY_INTERFACE_EXPORT_VERSION", "2", 1);
  const CudaArrayInterface exported = to_cuda_array_interface(data_);
  EXPECT_EQ(exported.version, 2);
  EXPECT_EQ(exported.stream, std::nullopt);
  setenv("CGTREE_CUDA_ARRAY_INTERFACE_EXPORT_VERSION", "latest", 1);
  EXPECT_THROW((void)to_cuda_array_interface(data_), InvalidArgument);
  unsetenv("CGTREE_CUDA_ARRAY_INTERFACE_EXPORT_VERSION");
}

// T-CAI 20 and 21.
// Acceptance: cai 20, 21.
TEST_F(CaiOrderTest, AHandshakeHasOneEdgePerStreamAndDirection) {
  const Stream second(device_);
  const Tensor a = import(*producer_);
  const Tensor b = import(*producer_);
  const Tensor c = import(second);
  trace_->clear();
  StreamSynchronization synchronization(*consumer_);
  for (const Tensor& tensor : {a, b, c, data_, Tensor()})
    synchronization.add(tensor);

  EXPECT_EQ(synchronization.streams(), 2u);
  synchronization.begin();
  EXPECT_EQ(order(), (Calls{"record_event producer", "wait_event consumer", "record_event other",
                            "wait_event consumer"}));
  trace_->clear();
  synchronization.finish();
  EXPECT_EQ(order(), (Calls{"record_event consumer", "wait_event producer", "record_event consumer",
                            "wait_event other"}));
}

TEST_F(CaiOrderTest, AHandshakeWithManyStreamsForgetsNone) {
  std::vector<Stream> streams;
  std::vector<Tensor> tensors;
  StreamSynchronization synchronization(*consumer_);
  for (int i = 0; i < 20; ++i) {
    tensors.push_back(import(streams.emplace_back(device_)));
    synchronization.add(tensors.back());
    synchronization.add(tensors.front());
  }
  trace_->clear();

  synchronization.begin();

  EXPECT_EQ(trace_->count("wait_event"), 20u);
  tensors.clear();  // before their streams
}

// T-CAI 23.
// Acceptance: cai 23.
TEST_F(CaiOrderTest, AnExportJoinsAllStreamsInTheOneItNames) {
  const Stream third(device_);
  const StreamRef pending[] = {producer_->ref(), consumer_->ref(), producer_->ref()};
  const StreamScope scope(third);

  const CudaArrayInterface exported = to_cuda_array_interface(data_, {.pending = pending});

  EXPECT_EQ(exported.stream, 1u) << "the stream of a tensor that empty() made";
  EXPECT_EQ(order(), (Calls{"record_event producer", "wait_event legacy", "record_event consumer",
                            "wait_event legacy", "record_event other", "wait_event legacy"}));
}

// T-CAI 24.
// Acceptance: cai 24.
TEST_F(CaiOrderTest, WithNothingPendingThereIsNoStream) {
  EXPECT_EQ(to_cuda_array_interface(data_, {.is_idle = true}).stream, std::nullopt);
  EXPECT_EQ(to_cuda_array_interface(data_.slice(0, 0, 0)).stream, std::nullopt);
  EXPECT_EQ(order(), Calls{});
}

TEST_F(CaiOrderTest, AStreamOfAnotherDeviceCannotBePending) {
  const Stream host(Device::host());
  const StreamRef pending[] = {host.ref()};

  EXPECT_THAT([&] { (void)to_cuda_array_interface(data_, {.pending = pending}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("a stream of host:0")));
}

// T-CAI 25.
// Acceptance: cai 25.
TEST_F(CaiOrderTest, AnExportedStreamOutlivesTheTensor) {
  auto stream = std::make_shared<const Stream>(device_);
  const StreamHandle handle = stream->ref().handle();
  Tensor tensor = on_stream(data_, std::move(stream));
  EXPECT_EQ(order(), (Calls{"record_event legacy", "wait_event other"}));

  const CudaArrayInterface exported = to_cuda_array_interface(tensor);

  EXPECT_EQ(exported.stream, static_cast<std::uintptr_t>(handle));
  EXPECT_EQ(trace_->count("destroy_stream"), 0u);
  trace_->clear();
  tensor = Tensor();
  EXPECT_EQ(order(), (Calls{"record_event other", "wait_event legacy"}));
  EXPECT_EQ(trace_->count("destroy_stream"), 1u);
}

// T-CAI 27.
// Acceptance: cai 27.
TEST_F(CaiOrderTest, TheTwoDefaultStreamsAreTwoStreams) {
  { const Tensor legacy = import(StreamRef(device_, StreamHandle::kLegacy)); }
  EXPECT_EQ(order(), (Calls{"record_event legacy", "wait_event consumer", "record_event consumer",
                            "wait_event legacy"}));
  trace_->clear();
  Tensor own = import(StreamRef(device_, StreamHandle::kPerThread));
  EXPECT_EQ(trace_->count("wait_event"), 1u);
  trace_->clear();
  // The per-thread stream of another thread is another stream: the host waits there.
  std::thread([&] { own = Tensor(); }).join();
  EXPECT_EQ(order(), Calls{"synchronize_stream consumer"});
}

// T-CAI 28.
// Acceptance: cai 28.
TEST_F(CaiOrderTest, InACaptureTheCapturingStreamMayBeTheProducers) {
  check(graphs().begin_capture(consumer_->ref().handle(), CaptureMode::kGlobal), "begin");
  trace_->clear();

  { const Tensor tensor = import(*consumer_); }

  EXPECT_EQ(order(), Calls{});
  GraphHandle graph = GraphHandle::kNull;
  EXPECT_EQ(graphs().end_capture(consumer_->ref().handle(), &graph), Code::kSuccess);
  check(graphs().destroy_graph(graph), "destroy");
}

// T-CAI 29.
// Acceptance: cai 29.
TEST_F(CaiOrderTest, AProducerInTheSameCaptureBecomesAnEdge) {
  check(graphs().begin_capture(consumer_->ref().handle(), CaptureMode::kGlobal), "begin");
  producer_->ref().wait_for(*consumer_);  // forks
  for (const auto policy : {SyncPolicy::kEventWait, SyncPolicy::kSynchronize}) {
    trace_->clear();
    (void)order_import(*producer_, *consumer_, policy);
    EXPECT_EQ(order(), (Calls{"record_event producer", "wait_event consumer"}));
  }
  GraphHandle graph = GraphHandle::kNull;
  EXPECT_EQ(graphs().end_capture(consumer_->ref().handle(), &graph), Code::kSuccess);
  check(graphs().destroy_graph(graph), "destroy");
}

// T-CAI 30.
// Acceptance: cai 30.
TEST_F(CaiOrderTest, AForeignProducerIsRefusedBeforeTheCaptureIsHurt) {
  const StreamHandle handle = consumer_->ref().handle();
  check(graphs().begin_capture(handle, CaptureMode::kGlobal), "begin");
  trace_->clear();
  for (const auto policy :
       {SyncPolicy::kEventWait, SyncPolicy::kSynchronize, SyncPolicy::kEnqueue}) {
    for (const StreamRef producer : {producer_->ref(), StreamRef(device_, StreamHandle::kLegacy),
                                     StreamRef(device_, StreamHandle::kPerThread)}) {
      EXPECT_THAT([&] { (void)import(producer, policy); },
                  ThrowsMessage<CaptureError>(HasSubstr("import it before the capture")));
    }
  }
  EXPECT_EQ(order(), Calls{});
  EXPECT_EQ(trace_->calls().size(), trace_->calls_of(CallKind::kQuery).size());
  CaptureInfo info;
  check(graphs().capture_info(handle, &info), "ask");
  EXPECT_EQ(info.status, CaptureStatus::kActive);
  GraphHandle graph = GraphHandle::kNull;
  EXPECT_EQ(graphs().end_capture(handle, &graph), Code::kSuccess);
  check(graphs().destroy_graph(graph), "destroy");
}

// T-CAI 31.
// Acceptance: cai 31.
TEST_F(CaiOrderTest, WhileTheStreamCapturesNothingIsExportedToWaitFor) {
  const StreamHandle handle = consumer_->ref().handle();
  check(graphs().begin_capture(handle, CaptureMode::kGlobal), "begin");
  trace_->clear();
  const StreamScope scope(*consumer_);
  const StreamRef pending[] = {producer_->ref()};

  EXPECT_EQ(to_cuda_array_interface(data_, {.pending = pending}).stream, std::nullopt);

  EXPECT_EQ(order(), Calls{});
  GraphHandle graph = GraphHandle::kNull;
  EXPECT_EQ(graphs().end_capture(handle, &graph), Code::kSuccess);
  check(graphs().destroy_graph(graph), "destroy");
}

// T-CAI 32: the reason for the rules about captures.
// Acceptance: cai 32.
TEST_F(CaiOrderTest, WaitingForAForeignStreamWouldHaveKilledTheCapture) {
  const StreamHandle handle = consumer_->ref().handle();
  check(graphs().begin_capture(handle, CaptureMode::kGlobal), "begin");

  EXPECT_THROW(consumer_->ref().wait_for(*producer_), CaptureError);

  GraphHandle graph = GraphHandle::kNull;
  EXPECT_EQ(graphs().end_capture(handle, &graph), Code::kStreamCaptureInvalidated);
}

TEST_F(CaiOrderTest, ALastReleaseWhileACaptureIsOpenDoesNotHurtIt) {
  Tensor tensor = import(*producer_);
  const StreamHandle handle = consumer_->ref().handle();
  check(graphs().begin_capture(handle, CaptureMode::kGlobal), "begin");
  trace_->clear();

  tensor = Tensor();

  EXPECT_EQ(order(), Calls{});
  GraphHandle graph = GraphHandle::kNull;
  EXPECT_EQ(graphs().end_capture(handle, &graph), Code::kSuccess);
  check(graphs().destroy_graph(graph), "destroy");
}

class CaiDataTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Devices, CaiDataTest, ::testing::ValuesIn(devices_under_test()),
                         [](const auto& info) { return info.param.name; });

// T-CAI 17 and 22: the producer's stream has a long chain, the host does not wait, and the producer
// overwrites data before the consumer has read it.
// Acceptance: cai 17, 22.
TEST_P(CaiDataTest, OurWorkSeesTheProducersAndTheProducersNextWorkWaitsForOurs) {
  DeviceBench bench(GetParam());
  const Device device = GetParam().device;
  const std::int64_t count = device.type == DeviceType::kCuda ? 1 << 22 : 1 << 12;
  const Stream producer(device);
  const Stream consumer(device);
  const Tensor data =
      from_host<float>({count}, std::vector<float>(static_cast<std::size_t>(count), -1), device);
  const Tensor result =
      from_host<float>({count}, std::vector<float>(static_cast<std::size_t>(count), 0), device);
  auto* const x = data.data<float>();
  auto* const y = result.data<float>();
  check(bench.fill(producer.ref().handle(), x, 0, count), "fill");
  for (int i = 0; i < 50; ++i)
    check(bench.add_one(producer.ref().handle(), x, count), "add");
  CudaArrayInterface array{.shape = {count}, .type = type_string_of(DType::kFloat32)};
  array.data = data.address();
  array.stream = static_cast<std::uintptr_t>(producer.ref().handle());

  Tensor tensor = from_cuda_array_interface(array, nullptr, {.consumer = consumer});
  const float one = 1;
  for (int i = 0; i < 20; ++i) {
    check(bench.graphs.launch_kernel(consumer.ref().handle(), axpy_kernel(), dims_for(count),
                                     arguments_of(one, x, y, count)),
          "axpy");
  }
  tensor = Tensor();
  check(bench.fill(producer.ref().handle(), x, -99, count), "overwrite");

  std::vector<float> values(static_cast<std::size_t>(count));
  result.copy_to_host(values.data(), result.bytes(), consumer);
  EXPECT_THAT(values, ::testing::Each(1000.0f));
  producer.synchronize();
}

}  // namespace
}  // namespace cgtree::testing
