// Results of functions while a capture is open, as a table: call, capture mode, kind of stream.
//
// The numbers are those of CUDA (driver 580, CUDA 13.0); a difference on the host device is a bug
// of the host device. Rows with kNotMeasured follow from the rules only: on other devices their
// answers are written down (see CGTREE_ANSWERS in answers.h) and not compared.
//
// Not in the table, because DeviceAPI and GraphAPI have no such function:
//   cudaMemcpy, cudaMemset       they are a call on the legacy stream and a wait for it
//   cudaMallocManaged, cudaHostRegister   memory that cgtree does not use
//   cudaEventElapsedTime         events have no time
//   cudaEventWaitExternal, cudaEventRecordExternal, cudaStreamBeginCaptureToGraph,
//   cudaStreamUpdateCaptureDependencies   recordings are whole, and nothing outside is waited for
//   cudaStreamAddCallback        deprecated; launch_host_function() takes its place
//   cudaPointerGetAttributes, cudaFuncGetAttributes    not used
// In graph_conformance_test: allocate_in_order() and free_in_order(). In capture_conformance_test
// and capture_threads_test, because they need several calls: joins, destroyed forks, a destroyed
// origin, several captures at once.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>
#include <tuple>

#include "interop/device/device_api.h"
#include "tests/interop/capture_situation.h"
#include "tests/support/answers.h"

namespace cgtree::testing {
namespace {

struct Answer {
  Code code;
  CaptureStatus after;
};

// By mode: global, thread-local, relaxed.
using Answers = std::array<Answer, 3>;

constexpr Answer kFine{Code::kSuccess, CaptureStatus::kActive};
constexpr Answer kUnsupported{Code::kStreamCaptureUnsupported, CaptureStatus::kInvalidated};
constexpr Answer kEnded{Code::kSuccess, CaptureStatus::kNone};
constexpr Answer kWrong{Code::kStreamCaptureWrongThread, CaptureStatus::kNone};
constexpr Answer kFineAndInvalid{Code::kSuccess, CaptureStatus::kInvalidated};
constexpr Answer kInvalidAndGone{Code::kStreamCaptureInvalidated, CaptureStatus::kNone};

constexpr Answers always(Code code, bool invalidates) {
  const Answer answer{code, invalidates ? CaptureStatus::kInvalidated : CaptureStatus::kActive};
  return {answer, answer, answer};
}

constexpr Answers kAlwaysFine{kFine, kFine, kFine};
constexpr Answers kNever = always(Code::kStreamCaptureUnsupported, true);
constexpr Answers kImplicit = always(Code::kStreamCaptureImplicit, true);
constexpr Answers kInvalid = always(Code::kStreamCaptureInvalidated, true);
constexpr Answers kUnsafe{kUnsupported, kUnsupported, kFine};
constexpr Answers kUnsafeFromAfar{kUnsupported, kFine, kFine};
constexpr Answers kUnsafeAndInvalid{kUnsupported, kUnsupported, kFineAndInvalid};
constexpr Answers kUnsafeFromAfarAndInvalid{kUnsupported, kFineAndInvalid, kFineAndInvalid};
constexpr Answers kWrongThread{kWrong, kWrong, kEnded};
constexpr Answers kGoneInvalid{kInvalidAndGone, kInvalidAndGone, kInvalidAndGone};

enum class From { kOwnThread, kAnotherThread };
enum class Source { kMeasured, kNotMeasured };

struct Row {
  const char* name;
  From from;
  Code (*call)(Situation&);
  Answers nonblocking;  // when `origin` is a non-blocking stream
  Answers blocking;
  Source source = Source::kMeasured;

  friend void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }
};

Code destroy_fork(Situation& s) {
  s.bench.forget(s.fork);
  return s.api.destroy_stream(s.fork);
}

Code number(Situation& s, StreamHandle stream) {
  std::uint64_t number = 0;
  return s.api.stream_number(0, stream, &number);
}

constexpr StreamHandle kLegacy = StreamHandle::kLegacy;
constexpr From kOwn = From::kOwnThread;
constexpr From kAfar = From::kAnotherThread;
constexpr Source kNotMeasured = Source::kNotMeasured;
using S = Situation;

// clang-format off
const Row kRows[] = {
    // Waits for captured work.
    {"SynchronizeOrigin", kOwn, [](S& s) { return s.api.synchronize_stream(s.origin); }, kNever, kNever},
    {"SynchronizeFork", kOwn, [](S& s) { return s.api.synchronize_stream(s.fork); }, kNever, kNever},
    {"QueryOrigin", kOwn, [](S& s) { return s.api.query_stream(s.origin); }, kNever, kNever},
    {"QueryFork", kOwn, [](S& s) { return s.api.query_stream(s.fork); }, kNever, kNever},
    {"QueryOriginFromAfar", kAfar, [](S& s) { return s.api.query_stream(s.origin); }, kNever, kNever},
    {"SynchronizeOriginRelaxed", kOwn, [](S& s) { return in_mode(s, CaptureMode::kRelaxed, [](S& t) { return t.api.synchronize_stream(t.origin); }); }, kNever, kNever},
    {"SynchronizeOriginFromAfar", kAfar, [](S& s) { return s.api.synchronize_stream(s.origin); }, kNever, kNever},
    {"SynchronizeDevice", kOwn, [](S& s) { return s.api.synchronize_device(0); }, kNever, kNever},
    {"SynchronizeDeviceFromAfar", kAfar, [](S& s) { return s.api.synchronize_device(0); }, kNever, kNever},
    {"SynchronizeDeviceRelaxed", kOwn, [](S& s) { return in_mode(s, CaptureMode::kRelaxed, [](S& t) { return t.api.synchronize_device(0); }); }, kNever, kNever, kNotMeasured},
    {"QueryCapturedEvent", kOwn, [](S& s) { return s.graphs.query_event(s.captured); }, always(Code::kCapturedEvent, true), always(Code::kCapturedEvent, true)},
    {"SynchronizeCapturedEvent", kOwn, [](S& s) { return s.graphs.synchronize_event(s.captured); }, always(Code::kCapturedEvent, true), always(Code::kCapturedEvent, true)},
    {"QueryCapturedEventFromAfar", kAfar, [](S& s) { return s.graphs.query_event(s.captured); }, always(Code::kCapturedEvent, true), always(Code::kCapturedEvent, true)},
    {"SynchronizeCapturedEventFromAfar", kAfar, [](S& s) { return s.graphs.synchronize_event(s.captured); }, always(Code::kCapturedEvent, true), always(Code::kCapturedEvent, true)},

    // Numbers of streams.
    {"NumberOfOrigin", kOwn, [](S& s) { return number(s, s.origin); }, kNever, kNever},
    {"NumberOfFork", kOwn, [](S& s) { return number(s, s.fork); }, kNever, kNever},
    {"NumberOfOriginFromAfar", kAfar, [](S& s) { return number(s, s.origin); }, kNever, kNever},
    {"NumberOfOther", kOwn, [](S& s) { return number(s, s.other); }, kAlwaysFine, kAlwaysFine},
    {"NumberOfPerThread", kOwn, [](S& s) { return number(s, StreamHandle::kPerThread); }, kAlwaysFine, kAlwaysFine},
    {"NumberOfLegacy", kOwn, [](S& s) { return number(s, kLegacy); }, kAlwaysFine, kImplicit},
    {"NumberOfLegacyFromAfar", kAfar, [](S& s) { return number(s, kLegacy); }, kAlwaysFine, kImplicit},

    // Potentially unsafe calls.
    {"SynchronizeOther", kOwn, [](S& s) { return s.api.synchronize_stream(s.other); }, kUnsafe, kUnsafe},
    {"QueryOther", kOwn, [](S& s) { return s.api.query_stream(s.other); }, kUnsafe, kUnsafe},
    {"SynchronizePerThread", kOwn, [](S& s) { return s.api.synchronize_stream(StreamHandle::kPerThread); }, kUnsafe, kUnsafe},
    {"QueryPerThread", kOwn, [](S& s) { return s.api.query_stream(StreamHandle::kPerThread); }, kUnsafe, kUnsafe},
    {"QueryOutsideEvent", kOwn, [](S& s) { return s.graphs.query_event(s.outside); }, kUnsafe, kUnsafe},
    {"QueryFreshEvent", kOwn, [](S& s) { return s.graphs.query_event(s.fresh); }, kUnsafe, kUnsafe},
    {"SynchronizeOutsideEvent", kOwn, [](S& s) { return s.graphs.synchronize_event(s.outside); }, kUnsafe, kUnsafe},
    {"SynchronizeFreshEvent", kOwn, [](S& s) { return s.graphs.synchronize_event(s.fresh); }, kUnsafe, kUnsafe, kNotMeasured},
    {"Alloc", kOwn, alloc, kUnsafe, kUnsafe},
    {"AllocPinned", kOwn, alloc_pinned, kUnsafe, kUnsafe},
    {"Free", kOwn, free_data, kUnsafe, kUnsafe},
    {"FreeNull", kOwn, [](S& s) { return s.api.free_data_space(0, nullptr); }, kUnsafe, kUnsafe},
    {"FreePinned", kOwn, free_pinned, kUnsafe, kUnsafe},
    {"FreePinnedNull", kOwn, [](S& s) { return s.api.free_pinned(nullptr); }, kUnsafe, kUnsafe, kNotMeasured},
    {"Instantiate", kOwn, instantiate, kUnsafe, kUnsafe},
    {"DestroyExec", kOwn, destroy_exec, kUnsafe, kUnsafe},
    {"AllocRelaxed", kOwn, [](S& s) { return in_mode(s, CaptureMode::kRelaxed, alloc); }, kAlwaysFine, kAlwaysFine},
    {"AllocPinnedRelaxed", kOwn, [](S& s) { return in_mode(s, CaptureMode::kRelaxed, alloc_pinned); }, kAlwaysFine, kAlwaysFine},
    {"FreeRelaxed", kOwn, [](S& s) { return in_mode(s, CaptureMode::kRelaxed, free_data); }, kAlwaysFine, kAlwaysFine},
    {"FreePinnedRelaxed", kOwn, [](S& s) { return in_mode(s, CaptureMode::kRelaxed, free_pinned); }, kAlwaysFine, kAlwaysFine},
    {"InstantiateRelaxed", kOwn, [](S& s) { return in_mode(s, CaptureMode::kRelaxed, instantiate); }, kAlwaysFine, kAlwaysFine},
    {"DestroyExecRelaxed", kOwn, [](S& s) { return in_mode(s, CaptureMode::kRelaxed, destroy_exec); }, kAlwaysFine, kAlwaysFine},
    {"SynchronizeOtherRelaxed", kOwn, [](S& s) { return in_mode(s, CaptureMode::kRelaxed, [](S& t) { return t.api.synchronize_stream(t.other); }); }, kAlwaysFine, kAlwaysFine},
    {"QueryOutsideEventRelaxed", kOwn, [](S& s) { return in_mode(s, CaptureMode::kRelaxed, [](S& t) { return t.graphs.query_event(t.outside); }); }, kAlwaysFine, kAlwaysFine},
    {"AllocThreadLocal", kOwn, [](S& s) { return in_mode(s, CaptureMode::kThreadLocal, alloc); }, kUnsafe, kUnsafe, kNotMeasured},
    {"SynchronizeOtherFromAfar", kAfar, [](S& s) { return s.api.synchronize_stream(s.other); }, kUnsafeFromAfar, kUnsafeFromAfar},
    {"QueryOutsideEventFromAfar", kAfar, [](S& s) { return s.graphs.query_event(s.outside); }, kUnsafeFromAfar, kUnsafeFromAfar},
    {"SynchronizeOutsideEventFromAfar", kAfar, [](S& s) { return s.graphs.synchronize_event(s.outside); }, kUnsafeFromAfar, kUnsafeFromAfar},
    {"QueryOtherFromAfar", kAfar, [](S& s) { return s.api.query_stream(s.other); }, kUnsafeFromAfar, kUnsafeFromAfar},
    {"SynchronizePerThreadFromAfar", kAfar, [](S& s) { return s.api.synchronize_stream(StreamHandle::kPerThread); }, kUnsafeFromAfar, kUnsafeFromAfar},
    {"AllocFromAfar", kAfar, alloc, kUnsafeFromAfar, kUnsafeFromAfar},
    {"FreeFromAfar", kAfar, free_data, kUnsafeFromAfar, kUnsafeFromAfar},
    {"AllocPinnedFromAfar", kAfar, alloc_pinned, kUnsafeFromAfar, kUnsafeFromAfar},
    {"InstantiateFromAfar", kAfar, instantiate, kUnsafeFromAfar, kUnsafeFromAfar},
    {"FreePinnedFromAfar", kAfar, free_pinned, kUnsafeFromAfar, kUnsafeFromAfar},
    {"DestroyExecFromAfar", kAfar, destroy_exec, kUnsafeFromAfar, kUnsafeFromAfar},
    {"AllocThreadLocalFromAfar", kAfar, [](S& s) { return in_mode(s, CaptureMode::kThreadLocal, alloc); }, kAlwaysFine, kAlwaysFine},
    {"AllocRelaxedFromAfar", kAfar, [](S& s) { return in_mode(s, CaptureMode::kRelaxed, alloc); }, kAlwaysFine, kAlwaysFine},

    // The legacy stream.
    {"SynchronizeLegacy", kOwn, [](S& s) { return s.api.synchronize_stream(kLegacy); }, kUnsafe, kImplicit},
    {"QueryLegacy", kOwn, [](S& s) { return s.api.query_stream(kLegacy); }, kUnsafe, kImplicit},
    {"SynchronizeLegacyRelaxed", kOwn, [](S& s) { return in_mode(s, CaptureMode::kRelaxed, [](S& t) { return t.api.synchronize_stream(kLegacy); }); }, kAlwaysFine, kImplicit, kNotMeasured},
    {"LaunchOnLegacy", kOwn, [](S& s) { return s.bench.add_one(kLegacy, s.other_x); }, kAlwaysFine, kImplicit},
    {"LaunchOnLegacyFromAfar", kAfar, [](S& s) { return s.bench.add_one(kLegacy, s.other_x); }, kAlwaysFine, kImplicit},
    {"LaunchOnNull", kOwn, [](S& s) { return s.bench.add_one(StreamHandle::kNull, s.other_x); }, kAlwaysFine, kImplicit},
    {"CopyOnLegacy", kOwn, [](S& s) { return s.api.copy(kLegacy, s.x, s.other_x, 4); }, kAlwaysFine, kImplicit},
    {"MemsetOnLegacy", kOwn, [](S& s) { return s.graphs.memset(kLegacy, s.other_x, 0, 4); }, kAlwaysFine, kImplicit},
    {"LaunchHostFunctionOnLegacy", kOwn, [](S& s) { return launch_host_function(s, kLegacy); }, kAlwaysFine, kImplicit},
    {"RecordOnLegacy", kOwn, [](S& s) { return s.graphs.record_event(s.fresh, kLegacy); }, kAlwaysFine, kImplicit},
    {"LegacyWaitsForOutside", kOwn, [](S& s) { return s.graphs.wait_event(kLegacy, s.outside); }, kAlwaysFine, kImplicit},
    {"LegacyWaitsForCaptured", kOwn, [](S& s) { return s.graphs.wait_event(kLegacy, s.captured); }, kImplicit, kImplicit},
    {"LaunchExecOnLegacy", kOwn, [](S& s) { return s.graphs.launch(s.exec, kLegacy); }, kAlwaysFine, kImplicit},
    {"InfoOfLegacy", kOwn, [](S& s) { return info(s, kLegacy); }, kAlwaysFine, always(Code::kStreamCaptureImplicit, false)},
    {"BeginOnLegacy", kOwn, [](S& s) { return begin(s, kLegacy); }, always(Code::kStreamCaptureUnsupported, false), kImplicit},
    {"EndOnLegacy", kOwn, [](S& s) { return end(s, kLegacy); }, always(Code::kIllegalState, false), kImplicit},

    // Streams outside the capture.
    {"LaunchOnOther", kOwn, [](S& s) { return s.bench.add_one(s.other, s.other_x); }, kAlwaysFine, kAlwaysFine},
    {"LaunchOnBlocking", kOwn, [](S& s) { return s.bench.add_one(s.blocking, s.other_x); }, kAlwaysFine, kAlwaysFine},
    {"LaunchOnPerThread", kOwn, [](S& s) { return s.bench.add_one(StreamHandle::kPerThread, s.other_x); }, kAlwaysFine, kAlwaysFine},
    {"LaunchOnPerThreadFromAfar", kAfar, [](S& s) { return s.bench.add_one(StreamHandle::kPerThread, s.other_x); }, kAlwaysFine, kAlwaysFine},
    {"CopyOnOther", kOwn, [](S& s) { return s.api.copy(s.other, s.other_x, s.x, 4); }, kAlwaysFine, kAlwaysFine},
    {"MemsetOnOther", kOwn, [](S& s) { return s.graphs.memset(s.other, s.other_x, 0, 4); }, kAlwaysFine, kAlwaysFine},
    {"LaunchHostFunctionOnOther", kOwn, [](S& s) { return launch_host_function(s, s.other); }, kAlwaysFine, kAlwaysFine},
    {"RecordOnOther", kOwn, [](S& s) { return s.graphs.record_event(s.fresh, s.other); }, kAlwaysFine, kAlwaysFine},
    {"RecordOnBlocking", kOwn, [](S& s) { return s.graphs.record_event(s.fresh, s.blocking); }, kAlwaysFine, kAlwaysFine},
    {"RecordOnPerThread", kOwn, [](S& s) { return s.graphs.record_event(s.fresh, StreamHandle::kPerThread); }, kAlwaysFine, kAlwaysFine},
    {"OtherWaitsForOutside", kOwn, [](S& s) { return s.graphs.wait_event(s.other, s.outside); }, kAlwaysFine, kAlwaysFine},
    {"LaunchExecOnOther", kOwn, [](S& s) { return s.graphs.launch(s.exec, s.other); }, kAlwaysFine, kAlwaysFine},
    {"CreateStream", kOwn, create_stream, kAlwaysFine, kAlwaysFine},
    {"CreateEvent", kOwn, create_event, kAlwaysFine, kAlwaysFine},
    {"DestroyOutsideEvent", kOwn, [](S& s) { return s.graphs.destroy_event(s.outside); }, kAlwaysFine, kAlwaysFine},
    {"AskForFreeMemory", kOwn, ask_for_free_memory, kAlwaysFine, kAlwaysFine},
    {"AskForFreeMemoryFromAfar", kAfar, ask_for_free_memory, kAlwaysFine, kAlwaysFine},
    {"NodesOfAnEndedGraph", kOwn, nodes_of_an_ended_graph, kAlwaysFine, kAlwaysFine, kNotMeasured},
    {"EdgesOfAnEndedGraph", kOwn, edges_of_an_ended_graph, kAlwaysFine, kAlwaysFine, kNotMeasured},
    {"InfoOfOther", kOwn, [](S& s) { return info(s, s.other); }, kAlwaysFine, kAlwaysFine},
    {"BeginOnOther", kOwn, [](S& s) { return begin(s, s.other); }, kAlwaysFine, kAlwaysFine},
    {"BeginOnPerThread", kOwn, [](S& s) { return begin(s, StreamHandle::kPerThread); }, kAlwaysFine, kAlwaysFine},
    {"BeginInNoMode", kOwn, [](S& s) { return begin(s, s.other, static_cast<CaptureMode>(7)); }, always(Code::kInvalidValue, false), always(Code::kInvalidValue, false)},
    {"EndOnOtherFromAfar", kAfar, [](S& s) { return end(s, s.other); }, always(Code::kIllegalState, false), always(Code::kIllegalState, false)},
    {"EndOnOther", kOwn, [](S& s) { return end(s, s.other); }, always(Code::kIllegalState, false), always(Code::kIllegalState, false)},

    // The capture itself.
    {"Launch", kOwn, [](S& s) { return s.bench.add_one(s.origin, s.x); }, kAlwaysFine, kAlwaysFine},
    {"LaunchFromAfar", kAfar, [](S& s) { return s.bench.add_one(s.origin, s.x); }, kAlwaysFine, kAlwaysFine},
    {"LaunchWithoutBlocks", kOwn, launch_without_blocks, always(Code::kInvalidValue, true), always(Code::kInvalidValue, true)},
    {"CopyOnDevice", kOwn, [](S& s) { return s.api.copy(s.origin, s.x, s.other_x, 4); }, kAlwaysFine, kAlwaysFine},
    {"CopyFromPageable", kOwn, [](S& s) { return s.api.copy(s.origin, s.x, s.host_x, 4); }, kAlwaysFine, kAlwaysFine},
    {"CopyToPageable", kOwn, [](S& s) { return s.api.copy(s.origin, s.host_x, s.x, 4); }, kAlwaysFine, kAlwaysFine},
    {"CopyFromPinned", kOwn, [](S& s) { return s.api.copy(s.origin, s.x, s.spare_pinned, 4); }, kAlwaysFine, kAlwaysFine},
    {"CopyToPinned", kOwn, [](S& s) { return s.api.copy(s.origin, s.spare_pinned, s.x, 4); }, kAlwaysFine, kAlwaysFine},
    {"CopyNothing", kOwn, [](S& s) { return s.api.copy(s.origin, s.x, s.other_x, 0); }, kAlwaysFine, kAlwaysFine},
    {"CopyToNull", kOwn, [](S& s) { return s.api.copy(s.origin, nullptr, s.x, 4); }, always(Code::kInvalidValue, false), always(Code::kInvalidValue, false)},
    {"Memset", kOwn, [](S& s) { return s.graphs.memset(s.origin, s.x, 0, 4); }, kAlwaysFine, kAlwaysFine},
    {"LaunchHostFunction", kOwn, [](S& s) { return launch_host_function(s, s.origin); }, kAlwaysFine, kAlwaysFine},
    {"Record", kOwn, [](S& s) { return s.graphs.record_event(s.fresh, s.origin); }, kAlwaysFine, kAlwaysFine},
    {"InfoOfOrigin", kOwn, [](S& s) { return info(s, s.origin); }, kAlwaysFine, kAlwaysFine},
    {"InfoOfOriginFromAfar", kAfar, [](S& s) { return info(s, s.origin); }, kAlwaysFine, kAlwaysFine},
    {"LaunchExecOnFork", kOwn, [](S& s) { return s.graphs.launch(s.exec, s.fork); }, kNever, kNever},
    {"LaunchExecRelaxed", kOwn, [](S& s) { return in_mode(s, CaptureMode::kRelaxed, [](S& t) { return t.graphs.launch(t.exec, t.origin); }); }, kNever, kNever, kNotMeasured},
    {"LaunchExec", kOwn, [](S& s) { return s.graphs.launch(s.exec, s.origin); }, kNever, kNever},
    {"DestroyCapturedEvent", kOwn, [](S& s) { return s.graphs.destroy_event(s.captured); }, kAlwaysFine, kAlwaysFine},
    {"DestroyGraph", kOwn, [](S& s) { s.bench.forget(s.graph); return s.graphs.destroy_graph(s.graph); }, kAlwaysFine, kAlwaysFine},
    {"WaitForOutside", kOwn, [](S& s) { return s.graphs.wait_event(s.origin, s.outside); }, always(Code::kStreamCaptureIsolation, true), always(Code::kStreamCaptureIsolation, true)},
    {"WaitForFresh", kOwn, [](S& s) { return s.graphs.wait_event(s.origin, s.fresh); }, kAlwaysFine, kAlwaysFine},
    {"WaitForOwn", kOwn, [](S& s) { return s.graphs.wait_event(s.origin, s.captured); }, kAlwaysFine, kAlwaysFine},
    {"OtherWaitsForCaptured", kOwn, [](S& s) { return s.graphs.wait_event(s.other, s.captured); }, kAlwaysFine, kAlwaysFine},
    {"WaitForAnotherCapture", kOwn, merge, always(Code::kStreamCaptureMerge, true), always(Code::kStreamCaptureMerge, true)},
    {"DestroyFork", kOwn, [](S& s) { return destroy_fork(s); }, kAlwaysFine, kAlwaysFine},
    {"BeginOnOrigin", kOwn, [](S& s) { return begin(s, s.origin); }, always(Code::kIllegalState, false), always(Code::kIllegalState, false)},
    {"BeginOnFork", kOwn, [](S& s) { return begin(s, s.fork); }, always(Code::kIllegalState, false), always(Code::kIllegalState, false)},
    {"EndOnFork", kOwn, [](S& s) { return end(s, s.fork); }, always(Code::kStreamCaptureUnmatched, true), always(Code::kStreamCaptureUnmatched, true)},
    {"EndOnForkFromAfar", kAfar, [](S& s) { return end(s, s.fork); }, always(Code::kStreamCaptureUnmatched, true), always(Code::kStreamCaptureUnmatched, true)},
    {"EndFromAfar", kAfar, [](S& s) { return end(s, s.origin); }, kWrongThread, kWrongThread},
    {"EndRelaxedFromAfar", kAfar, [](S& s) { return in_mode(s, CaptureMode::kRelaxed, [](S& t) { return end(t, t.origin); }); }, kWrongThread, kWrongThread},
};

// The same on an invalidated capture.
const Row kRowsOnceInvalid[] = {
    {"Launch", kOwn, [](S& s) { return s.bench.add_one(s.origin, s.x); }, kInvalid, kInvalid},
    {"LaunchFromAfar", kAfar, [](S& s) { return s.bench.add_one(s.origin, s.x); }, kInvalid, kInvalid},
    {"LaunchOnFork", kOwn, [](S& s) { return s.bench.add_one(s.fork, s.x); }, kInvalid, kInvalid, kNotMeasured},
    {"Copy", kOwn, [](S& s) { return s.api.copy(s.origin, s.x, s.other_x, 4); }, kInvalid, kInvalid},
    {"Memset", kOwn, [](S& s) { return s.graphs.memset(s.origin, s.x, 0, 4); }, kInvalid, kInvalid},
    {"LaunchHostFunction", kOwn, [](S& s) { return launch_host_function(s, s.origin); }, kInvalid, kInvalid},
    {"Record", kOwn, [](S& s) { return s.graphs.record_event(s.fresh, s.origin); }, kInvalid, kInvalid},
    {"WaitForOutside", kOwn, [](S& s) { return s.graphs.wait_event(s.origin, s.outside); }, kInvalid, kInvalid, kNotMeasured},
    {"OtherWaitsForCaptured", kOwn, [](S& s) { return s.graphs.wait_event(s.other, s.captured); }, always(Code::kInvalidValue, true), always(Code::kInvalidValue, true)},
    {"QueryCapturedEvent", kOwn, [](S& s) { return s.graphs.query_event(s.captured); }, always(Code::kInvalidValue, true), always(Code::kInvalidValue, true)},
    {"SynchronizeOrigin", kOwn, [](S& s) { return s.api.synchronize_stream(s.origin); }, kNever, kNever},
    {"SynchronizeOther", kOwn, [](S& s) { return s.api.synchronize_stream(s.other); }, kUnsafeAndInvalid, kUnsafeAndInvalid},
    {"Alloc", kOwn, alloc, kUnsafeAndInvalid, kUnsafeAndInvalid},
    {"AllocFromAfar", kAfar, alloc, kUnsafeFromAfarAndInvalid, kUnsafeFromAfarAndInvalid, kNotMeasured},
    {"LaunchExec", kOwn, [](S& s) { return s.graphs.launch(s.exec, s.origin); }, kNever, kNever, kNotMeasured},
    {"LaunchOnLegacy", kOwn, [](S& s) { return s.bench.add_one(kLegacy, s.other_x); }, always(Code::kSuccess, true), kImplicit, kNotMeasured},
    {"LaunchOnOther", kOwn, [](S& s) { return s.bench.add_one(s.other, s.other_x); }, always(Code::kSuccess, true), always(Code::kSuccess, true)},
    {"InfoOfOrigin", kOwn, [](S& s) { return info(s, s.origin); }, always(Code::kSuccess, true), always(Code::kSuccess, true)},
    {"BeginOnOrigin", kOwn, [](S& s) { return begin(s, s.origin); }, always(Code::kIllegalState, true), always(Code::kIllegalState, true)},
    {"EndOnFork", kOwn, [](S& s) { return end(s, s.fork); }, always(Code::kStreamCaptureUnmatched, true), always(Code::kStreamCaptureUnmatched, true), kNotMeasured},
    {"EndFromAfar", kAfar, [](S& s) { return end(s, s.origin); }, kGoneInvalid, kGoneInvalid},
};
// clang-format on

constexpr const char* kModes[] = {"Global", "ThreadLocal", "Relaxed"};

std::string name_of(StreamKind kind) {
  return kind == StreamKind::kBlocking ? "Blocking" : "NonBlocking";
}

using Parameter = std::tuple<DeviceUnderTest, Row, CaptureMode, StreamKind>;

class CaptureMatrixTest : public ::testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(std::get<0>(GetParam())); }

  // `prefix` precedes the name of the call in the written answers.
  void expect_answers(Situation& situation, const std::string& prefix) {
    const auto& [device, row, mode, kind] = GetParam();
    Code code = Code::kSuccess;
    Code last_error = Code::kSuccess;
    const auto call = [&, &row = row] {
      static_cast<void>(situation.graphs.take_last_error());
      code = row.call(situation);
      last_error = situation.graphs.take_last_error();
    };
    row.from == From::kAnotherThread ? std::thread(call).join() : call();
    const CaptureStatus after = situation.bench.info(situation.origin).status;
    const Code ended = end(situation, situation.origin);
    const auto number = static_cast<std::size_t>(mode);
    note_answer({device.name, prefix + row.name, kModes[number], name_of(kind), code, last_error,
                 after, ended});
    if (row.source == Source::kNotMeasured && device.device.type != DeviceType::kHost) return;

    const Answer& expected =
        (kind == StreamKind::kBlocking ? row.blocking : row.nonblocking)[number];
    if (prefix.empty() && refuses_itself(device, row)) {
      EXPECT_EQ(code, kInvalidConfiguration);
      EXPECT_EQ(after, CaptureStatus::kActive);
      return;
    }
    EXPECT_EQ(code, expected.code);
    EXPECT_EQ(last_error, expected.code);
    EXPECT_EQ(after, expected.after);
    EXPECT_EQ(ended, end_of(expected.after));
  }

 private:
  static constexpr auto kInvalidConfiguration = static_cast<Code>(9);

  // Runtimes of CUDA 12 refuse a launch without blocks themselves, and the capture goes on.
  static bool refuses_itself(const DeviceUnderTest& device, const Row& row) {
    const AttributeValue built = device.api->attribute(0, DeviceAttribute::kApiVersion);
    const auto* const version = std::get_if<std::int64_t>(&built);
    return device.device.type == DeviceType::kCuda && version != nullptr && *version < 13000 &&
           row.call == launch_without_blocks;
  }

  static Code end_of(CaptureStatus status) {
    if (status == CaptureStatus::kActive) return Code::kSuccess;
    return status == CaptureStatus::kNone ? Code::kIllegalState : Code::kStreamCaptureInvalidated;
  }
};

// Also row 4.3 cuda_graph_error_options: AllocFromAfar, by mode.
// Acceptance: graphs cuda_graph_error_options.
TEST_P(CaptureMatrixTest, AnswersAndInvalidatesAsCudaDoes) {
  const auto& [device, row, mode, kind] = GetParam();
  Situation situation(device, mode, kind);

  expect_answers(situation, "");
}

class InvalidCaptureMatrixTest : public CaptureMatrixTest {};

TEST_P(InvalidCaptureMatrixTest, AnswersAsCudaDoes) {
  const auto& [device, row, mode, kind] = GetParam();
  Situation situation(device, mode, kind);
  EXPECT_EQ(situation.api.synchronize_stream(situation.origin), Code::kStreamCaptureUnsupported);

  expect_answers(situation, "Invalid");
}

std::string name_of_test(const ::testing::TestParamInfo<Parameter>& info) {
  const auto& [device, row, mode, kind] = info.param;
  return device.name + "_" + row.name + "_" + kModes[static_cast<int>(mode)] + "_" + name_of(kind);
}

const auto kAllModes =
    ::testing::Values(CaptureMode::kGlobal, CaptureMode::kThreadLocal, CaptureMode::kRelaxed);
const auto kBothKinds = ::testing::Values(StreamKind::kNonBlocking, StreamKind::kBlocking);

INSTANTIATE_TEST_SUITE_P(Devices, CaptureMatrixTest,
                         ::testing::Combine(::testing::ValuesIn(executors_under_test()),
                                            ::testing::ValuesIn(kRows), kAllModes, kBothKinds),
                         name_of_test);
INSTANTIATE_TEST_SUITE_P(Devices, InvalidCaptureMatrixTest,
                         ::testing::Combine(::testing::ValuesIn(executors_under_test()),
                                            ::testing::ValuesIn(kRowsOnceInvalid), kAllModes,
                                            kBothKinds),
                         name_of_test);

}  // namespace
}  // namespace cgtree::testing
