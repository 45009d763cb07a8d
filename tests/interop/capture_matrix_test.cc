// What a verb answers while a capture is open, as a table: call, capture mode, kind of stream.
//
// The numbers are what CUDA answered (driver 580, CUDA 13.0); a difference on the host device is a
// bug of the host device.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

// A capture on `origin` with one node, which `fork` has joined without work of its own.
struct Situation {
  Situation(const DeviceUnderTest& device, CaptureMode mode, StreamKind kind)
      : bench(device), origin(bench.stream(kind)) {
    check(bench.fill(blocking, other_x, 1), "launch");
    check(bench.graphs.record_event(outside, other), "record");
    check(bench.api.synchronize_device(0), "synchronize");
    check(bench.api.alloc_data_space(0, 64, &spare), "allocate");
    check(bench.api.alloc_pinned(64, &spare_pinned), "allocate");
    check(bench.graphs.begin_capture(other, CaptureMode::kThreadLocal), "begin");
    graph = bench.end(other);
    exec = bench.instantiate(graph);

    check(bench.graphs.begin_capture(origin, mode), "begin");
    check(bench.add_one(origin, x), "launch");
    check(bench.graphs.record_event(captured, origin), "record");
    check(bench.graphs.wait_event(fork, captured), "wait");
  }
  ~Situation() {
    GraphHandle none = GraphHandle::kNull;
    static_cast<void>(bench.graphs.end_capture(origin, &none));
    if (none != GraphHandle::kNull) static_cast<void>(bench.graphs.destroy_graph(none));
    static_cast<void>(bench.api.free_data_space(0, spare));
    static_cast<void>(bench.api.free_pinned(spare_pinned));
  }

  DeviceBench bench;
  DeviceAPI& api = bench.api;
  GraphAPI& graphs = bench.graphs;
  StreamHandle origin;
  StreamHandle fork = bench.stream();
  StreamHandle other = bench.stream();
  StreamHandle blocking = bench.stream(StreamKind::kBlocking);
  EventHandle captured = bench.event();
  EventHandle outside = bench.event();  // recorded and complete
  EventHandle fresh = bench.event();    // never recorded
  float* x = bench.floats(16);
  float* other_x = bench.floats(16);
  float host_x[16] = {};
  void* spare = nullptr;
  void* spare_pinned = nullptr;
  GraphHandle graph = GraphHandle::kNull;
  ExecHandle exec = ExecHandle::kNull;
};

struct Answer {
  Code code;
  bool invalidates;
};

// By mode: global, thread-local, relaxed.
using Answers = std::array<Answer, 3>;

constexpr Answer kFine{Code::kSuccess, false};
constexpr Answer kUnsupported{Code::kStreamCaptureUnsupported, true};

constexpr Answers always(Code code, bool invalidates) {
  const Answer answer{code, invalidates};
  return {answer, answer, answer};
}

constexpr Answers kAlwaysFine{kFine, kFine, kFine};
constexpr Answers kNever = always(Code::kStreamCaptureUnsupported, true);
constexpr Answers kImplicit = always(Code::kStreamCaptureImplicit, true);
constexpr Answers kUnsafe{kUnsupported, kUnsupported, kFine};
constexpr Answers kUnsafeFromAfar{kUnsupported, kFine, kFine};

enum class From { kOwnThread, kAnotherThread };

struct Row {
  const char* name;
  From from;
  Code (*call)(Situation&);
  Answers nonblocking;  // when `origin` is a non-blocking stream
  Answers blocking;

  friend void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }
};

void nothing(void*) {
}

Code alloc(Situation& s) {
  void* data = nullptr;
  const Code code = s.api.alloc_data_space(0, 64, &data);
  static_cast<void>(ok(code) ? s.api.free_data_space(0, data) : code);
  return code;
}

Code alloc_pinned(Situation& s) {
  void* data = nullptr;
  const Code code = s.api.alloc_pinned(64, &data);
  static_cast<void>(ok(code) ? s.api.free_pinned(data) : code);
  return code;
}

Code instantiate(Situation& s) {
  ExecHandle exec = ExecHandle::kNull;
  const Code code = s.graphs.instantiate(s.graph, &exec);
  static_cast<void>(ok(code) ? s.graphs.destroy_exec(exec) : code);
  return code;
}

Code destroy_exec(Situation& s) {
  s.bench.forget(s.exec);
  return s.graphs.destroy_exec(s.exec);
}

Code free_data(Situation& s) {
  const Code code = s.api.free_data_space(0, s.spare);
  s.spare = ok(code) ? nullptr : s.spare;
  return code;
}

Code free_pinned(Situation& s) {
  const Code code = s.api.free_pinned(s.spare_pinned);
  s.spare_pinned = ok(code) ? nullptr : s.spare_pinned;
  return code;
}

Code create_stream(Situation& s) {
  StreamHandle stream = StreamHandle::kNull;
  const Code code = s.api.create_stream(0, StreamKind::kBlocking, &stream);
  return ok(code) ? s.api.destroy_stream(stream) : code;
}

Code create_event(Situation& s) {
  EventHandle event = EventHandle::kNull;
  const Code code = s.graphs.create_event(&event);
  return ok(code) ? s.graphs.destroy_event(event) : code;
}

Code end(Situation& s, StreamHandle stream) {
  GraphHandle graph = GraphHandle::kNull;
  return s.graphs.end_capture(stream, &graph);
}

Code info(Situation& s, StreamHandle stream) {
  CaptureInfo info;
  return s.graphs.capture_info(stream, &info);
}

// An exchange to relaxed around an allocation, undone at once.
Code alloc_relaxed(Situation& s) {
  CaptureMode mode = CaptureMode::kRelaxed;
  check(s.graphs.exchange_capture_mode(&mode), "exchange");
  const Code code = alloc(s);
  check(s.graphs.exchange_capture_mode(&mode), "exchange");
  return code;
}

Code launch_without_blocks(Situation& s) {
  const std::int64_t count = 1;
  return s.graphs.launch_kernel(s.origin, add_one_kernel(), {.grid = {0}},
                                arguments_of(s.x, count));
}

constexpr StreamHandle kLegacy = StreamHandle::kLegacy;
constexpr From kOwn = From::kOwnThread;
constexpr From kAfar = From::kAnotherThread;
using S = Situation;

// clang-format off
const Row kRows[] = {
    // Waiting on what is captured.
    {"SynchronizeOrigin", kOwn, [](S& s) { return s.api.synchronize_stream(s.origin); }, kNever, kNever},
    {"SynchronizeFork", kOwn, [](S& s) { return s.api.synchronize_stream(s.fork); }, kNever, kNever},
    {"QueryOrigin", kOwn, [](S& s) { return s.api.query_stream(s.origin); }, kNever, kNever},
    {"SynchronizeOriginFromAfar", kAfar, [](S& s) { return s.api.synchronize_stream(s.origin); }, kNever, kNever},
    {"SynchronizeDevice", kOwn, [](S& s) { return s.api.synchronize_device(0); }, kNever, kNever},
    {"SynchronizeDeviceFromAfar", kAfar, [](S& s) { return s.api.synchronize_device(0); }, kNever, kNever},
    {"QueryCapturedEvent", kOwn, [](S& s) { return s.graphs.query_event(s.captured); }, always(Code::kCapturedEvent, true), always(Code::kCapturedEvent, true)},
    {"SynchronizeCapturedEvent", kOwn, [](S& s) { return s.graphs.synchronize_event(s.captured); }, always(Code::kCapturedEvent, true), always(Code::kCapturedEvent, true)},
    {"QueryCapturedEventFromAfar", kAfar, [](S& s) { return s.graphs.query_event(s.captured); }, always(Code::kCapturedEvent, true), always(Code::kCapturedEvent, true)},

    // Potentially unsafe calls.
    {"SynchronizeOther", kOwn, [](S& s) { return s.api.synchronize_stream(s.other); }, kUnsafe, kUnsafe},
    {"QueryOther", kOwn, [](S& s) { return s.api.query_stream(s.other); }, kUnsafe, kUnsafe},
    {"SynchronizePerThread", kOwn, [](S& s) { return s.api.synchronize_stream(StreamHandle::kPerThread); }, kUnsafe, kUnsafe},
    {"QueryOutsideEvent", kOwn, [](S& s) { return s.graphs.query_event(s.outside); }, kUnsafe, kUnsafe},
    {"QueryFreshEvent", kOwn, [](S& s) { return s.graphs.query_event(s.fresh); }, kUnsafe, kUnsafe},
    {"SynchronizeOutsideEvent", kOwn, [](S& s) { return s.graphs.synchronize_event(s.outside); }, kUnsafe, kUnsafe},
    {"Alloc", kOwn, alloc, kUnsafe, kUnsafe},
    {"AllocPinned", kOwn, alloc_pinned, kUnsafe, kUnsafe},
    {"Free", kOwn, free_data, kUnsafe, kUnsafe},
    {"FreeNull", kOwn, [](S& s) { return s.api.free_data_space(0, nullptr); }, kUnsafe, kUnsafe},
    {"FreePinned", kOwn, free_pinned, kUnsafe, kUnsafe},
    {"Instantiate", kOwn, instantiate, kUnsafe, kUnsafe},
    {"DestroyExec", kOwn, destroy_exec, kUnsafe, kUnsafe},
    {"AllocRelaxed", kOwn, alloc_relaxed, kAlwaysFine, kAlwaysFine},
    {"SynchronizeOtherFromAfar", kAfar, [](S& s) { return s.api.synchronize_stream(s.other); }, kUnsafeFromAfar, kUnsafeFromAfar},
    {"QueryOutsideEventFromAfar", kAfar, [](S& s) { return s.graphs.query_event(s.outside); }, kUnsafeFromAfar, kUnsafeFromAfar},
    {"AllocFromAfar", kAfar, alloc, kUnsafeFromAfar, kUnsafeFromAfar},
    {"FreeFromAfar", kAfar, free_data, kUnsafeFromAfar, kUnsafeFromAfar},
    {"AllocPinnedFromAfar", kAfar, alloc_pinned, kUnsafeFromAfar, kUnsafeFromAfar},
    {"InstantiateFromAfar", kAfar, instantiate, kUnsafeFromAfar, kUnsafeFromAfar},

    // The legacy stream.
    {"SynchronizeLegacy", kOwn, [](S& s) { return s.api.synchronize_stream(kLegacy); }, kUnsafe, kImplicit},
    {"QueryLegacy", kOwn, [](S& s) { return s.api.query_stream(kLegacy); }, kUnsafe, kImplicit},
    {"LaunchOnLegacy", kOwn, [](S& s) { return s.bench.add_one(kLegacy, s.other_x); }, kAlwaysFine, kImplicit},
    {"LaunchOnLegacyFromAfar", kAfar, [](S& s) { return s.bench.add_one(kLegacy, s.other_x); }, kAlwaysFine, kImplicit},
    {"LaunchOnNull", kOwn, [](S& s) { return s.bench.add_one(StreamHandle::kNull, s.other_x); }, kAlwaysFine, kImplicit},
    {"CopyOnLegacy", kOwn, [](S& s) { return s.api.copy(kLegacy, s.x, s.other_x, 4); }, kAlwaysFine, kImplicit},
    {"MemsetOnLegacy", kOwn, [](S& s) { return s.graphs.memset(kLegacy, s.other_x, 0, 4); }, kAlwaysFine, kImplicit},
    {"RecordOnLegacy", kOwn, [](S& s) { return s.graphs.record_event(s.fresh, kLegacy); }, kAlwaysFine, kImplicit},
    {"LegacyWaitsForOutside", kOwn, [](S& s) { return s.graphs.wait_event(kLegacy, s.outside); }, kAlwaysFine, kImplicit},
    {"LegacyWaitsForCaptured", kOwn, [](S& s) { return s.graphs.wait_event(kLegacy, s.captured); }, kImplicit, kImplicit},
    {"LaunchExecOnLegacy", kOwn, [](S& s) { return s.graphs.launch(s.exec, kLegacy); }, kAlwaysFine, kImplicit},
    {"InfoOfLegacy", kOwn, [](S& s) { return info(s, kLegacy); }, kAlwaysFine, always(Code::kStreamCaptureImplicit, false)},
    {"BeginOnLegacy", kOwn, [](S& s) { return s.graphs.begin_capture(kLegacy, CaptureMode::kRelaxed); }, always(Code::kStreamCaptureUnsupported, false), kImplicit},
    {"EndOnLegacy", kOwn, [](S& s) { return end(s, kLegacy); }, always(Code::kIllegalState, false), kImplicit},

    // Streams that have nothing to do with it.
    {"LaunchOnOther", kOwn, [](S& s) { return s.bench.add_one(s.other, s.other_x); }, kAlwaysFine, kAlwaysFine},
    {"LaunchOnBlocking", kOwn, [](S& s) { return s.bench.add_one(s.blocking, s.other_x); }, kAlwaysFine, kAlwaysFine},
    {"LaunchOnPerThread", kOwn, [](S& s) { return s.bench.add_one(StreamHandle::kPerThread, s.other_x); }, kAlwaysFine, kAlwaysFine},
    {"RecordOnOther", kOwn, [](S& s) { return s.graphs.record_event(s.fresh, s.other); }, kAlwaysFine, kAlwaysFine},
    {"LaunchExecOnOther", kOwn, [](S& s) { return s.graphs.launch(s.exec, s.other); }, kAlwaysFine, kAlwaysFine},
    {"CreateStream", kOwn, create_stream, kAlwaysFine, kAlwaysFine},
    {"CreateEvent", kOwn, create_event, kAlwaysFine, kAlwaysFine},
    {"EndOnOther", kOwn, [](S& s) { return end(s, s.other); }, always(Code::kIllegalState, false), always(Code::kIllegalState, false)},

    // The capture itself.
    {"Launch", kOwn, [](S& s) { return s.bench.add_one(s.origin, s.x); }, kAlwaysFine, kAlwaysFine},
    {"LaunchFromAfar", kAfar, [](S& s) { return s.bench.add_one(s.origin, s.x); }, kAlwaysFine, kAlwaysFine},
    {"LaunchWithoutBlocks", kOwn, launch_without_blocks, always(Code::kInvalidValue, true), always(Code::kInvalidValue, true)},
    {"CopyOnDevice", kOwn, [](S& s) { return s.api.copy(s.origin, s.x, s.other_x, 4); }, kAlwaysFine, kAlwaysFine},
    {"CopyFromPageable", kOwn, [](S& s) { return s.api.copy(s.origin, s.x, s.host_x, 4); }, kAlwaysFine, kAlwaysFine},
    {"CopyToPageable", kOwn, [](S& s) { return s.api.copy(s.origin, s.host_x, s.x, 4); }, kAlwaysFine, kAlwaysFine},
    {"CopyFromPinned", kOwn, [](S& s) { return s.api.copy(s.origin, s.x, s.spare_pinned, 4); }, kAlwaysFine, kAlwaysFine},
    {"CopyNothing", kOwn, [](S& s) { return s.api.copy(s.origin, s.x, s.other_x, 0); }, kAlwaysFine, kAlwaysFine},
    {"CopyToNull", kOwn, [](S& s) { return s.api.copy(s.origin, nullptr, s.x, 4); }, always(Code::kInvalidValue, false), always(Code::kInvalidValue, false)},
    {"Memset", kOwn, [](S& s) { return s.graphs.memset(s.origin, s.x, 0, 4); }, kAlwaysFine, kAlwaysFine},
    {"LaunchHostFunction", kOwn, [](S& s) { return s.graphs.launch_host_function(s.origin, nothing, nullptr); }, kAlwaysFine, kAlwaysFine},
    {"LaunchExec", kOwn, [](S& s) { return s.graphs.launch(s.exec, s.origin); }, kNever, kNever},
    {"DestroyCapturedEvent", kOwn, [](S& s) { return s.graphs.destroy_event(s.captured); }, kAlwaysFine, kAlwaysFine},
    {"DestroyGraph", kOwn, [](S& s) { s.bench.forget(s.graph); return s.graphs.destroy_graph(s.graph); }, kAlwaysFine, kAlwaysFine},
    {"WaitForOutside", kOwn, [](S& s) { return s.graphs.wait_event(s.origin, s.outside); }, always(Code::kStreamCaptureIsolation, true), always(Code::kStreamCaptureIsolation, true)},
    {"WaitForFresh", kOwn, [](S& s) { return s.graphs.wait_event(s.origin, s.fresh); }, kAlwaysFine, kAlwaysFine},
    {"WaitForOwn", kOwn, [](S& s) { return s.graphs.wait_event(s.origin, s.captured); }, kAlwaysFine, kAlwaysFine},
    {"BeginOnOrigin", kOwn, [](S& s) { return s.graphs.begin_capture(s.origin, CaptureMode::kRelaxed); }, always(Code::kIllegalState, false), always(Code::kIllegalState, false)},
    {"BeginOnFork", kOwn, [](S& s) { return s.graphs.begin_capture(s.fork, CaptureMode::kRelaxed); }, always(Code::kIllegalState, false), always(Code::kIllegalState, false)},
    {"EndOnFork", kOwn, [](S& s) { return end(s, s.fork); }, always(Code::kStreamCaptureUnmatched, true), always(Code::kStreamCaptureUnmatched, true)},
    {"EndOnForkFromAfar", kAfar, [](S& s) { return end(s, s.fork); }, always(Code::kStreamCaptureUnmatched, true), always(Code::kStreamCaptureUnmatched, true)},
};
// clang-format on

using Parameter = std::tuple<DeviceUnderTest, Row, CaptureMode, StreamKind>;

class CaptureMatrixTest : public ::testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(std::get<0>(GetParam())); }
};

// Also row 4.3 cuda_graph_error_options: AllocFromAfar, by mode.
TEST_P(CaptureMatrixTest, AnswersAndInvalidatesAsCudaDoes) {
  const auto& [device, row, mode, kind] = GetParam();
  Situation situation(device, mode, kind);
  const Answers& answers = kind == StreamKind::kBlocking ? row.blocking : row.nonblocking;
  const Answer& expected = answers[static_cast<std::size_t>(mode)];

  Code code = Code::kSuccess;
  Code last_error = Code::kSuccess;
  const auto call = [&, &row = row] {
    code = row.call(situation);
    last_error = situation.graphs.take_last_error();
  };
  row.from == From::kAnotherThread ? std::thread(call).join() : call();

  EXPECT_EQ(code, expected.code);
  EXPECT_EQ(last_error, expected.code);
  EXPECT_EQ(situation.bench.info(situation.origin).status,
            expected.invalidates ? CaptureStatus::kInvalidated : CaptureStatus::kActive);
  EXPECT_EQ(end(situation, situation.origin),
            expected.invalidates ? Code::kStreamCaptureInvalidated : Code::kSuccess);
}

std::string name_of(const ::testing::TestParamInfo<Parameter>& info) {
  static constexpr const char* kModes[] = {"Global", "ThreadLocal", "Relaxed"};
  const auto& [device, row, mode, kind] = info.param;
  return device.name + "_" + row.name + "_" + kModes[static_cast<int>(mode)] +
         (kind == StreamKind::kBlocking ? "_Blocking" : "_NonBlocking");
}

INSTANTIATE_TEST_SUITE_P(
    Devices, CaptureMatrixTest,
    ::testing::Combine(::testing::ValuesIn(devices_under_test()), ::testing::ValuesIn(kRows),
                       ::testing::Values(CaptureMode::kGlobal, CaptureMode::kThreadLocal,
                                         CaptureMode::kRelaxed),
                       ::testing::Values(StreamKind::kNonBlocking, StreamKind::kBlocking)),
    name_of);

}  // namespace
}  // namespace cgtree::testing
