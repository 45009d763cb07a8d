// CaptureTable: the open captures, and CUDA's rules about calls that they forbid; and the state of
// streams, events and threads.
//
// Every rule and number was measured on a driver (driver 580, CUDA 13.0). A capture that a rule
// invalidates stays open, refuses work with 901, and still forbids the same calls, until it is
// ended.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"
#include "simulator/graph.h"
#include "simulator/work_queue.h"

namespace cgtree::host {

struct Capture;

// A HostStream is the state of a stream. Without a queue, work runs on the submitting thread before
// the call returns, and `order` serialises submissions of several threads to one stream. The
// runtime's mutex guards all members that are not const, except `order`.
struct HostStream {
  HostStream(StreamHandle stream_handle, int device_id, StreamKind stream_kind,
             std::uint64_t stream_number)
      : handle(stream_handle), device(device_id), kind(stream_kind), number(stream_number) {}

  bool is_legacy() const noexcept { return handle == StreamHandle::kLegacy; }

  const StreamHandle handle;
  const int device;
  const StreamKind kind;
  const std::uint64_t number;  // unique in the process, unlike a handle
  std::mutex order;
  OperationPtr last;                 // the work queued last; null: none yet
  std::shared_ptr<Capture> capture;  // null: not capturing
  std::vector<NodeHandle> tails;     // the dependencies of the next node; empty if not capturing
};

// A HostEvent is the state at the last record; a wait uses the state at its own time.
struct HostEvent {
  bool recorded = false;
  std::shared_ptr<Capture> capture;  // not null: recorded in this capture, which may have ended
  std::vector<NodeHandle> nodes;     // of that capture; the streams' tails at the record
  OperationPtr operation;            // the event is complete when this has ended
  bool is_timed = false;
  HostTime time = {};  // of an event without an operation
};

struct Capture {
  std::uint64_t id;
  CaptureMode mode;
  std::uint64_t thread;  // the thread that began it
  const HostStream* origin;
  std::shared_ptr<Graph> graph;
  bool is_of_body;                                   // the graph belongs to a conditional node
  std::vector<std::shared_ptr<HostStream>> streams;  // the streams of the capture, `origin` first
  CaptureStatus status = CaptureStatus::kActive;     // kNone once it has ended
};

struct ThreadState {
  std::uint64_t id = 0;  // never reused, unlike a std::thread::id
  CaptureMode mode = CaptureMode::kGlobal;
  Code last_error = Code::kSuccess;
  bool is_running_work = false;
  std::shared_ptr<HostStream> stream;  // its per-thread stream, once it is used
};

// Thread safety: the runtime's mutex is held around every call.
class CaptureTable {
 public:
  // Returns 906 while a blocking stream captures, 900 on the legacy stream, 401 on a stream that is
  // in a capture already. `id` becomes the capture's id and its graph's handle. `body`: null, or
  // the body to which nodes are added; 401 if another capture adds to it.
  Code begin(const std::shared_ptr<HostStream>& stream, CaptureMode mode, const ThreadState& caller,
             std::uint64_t id, std::shared_ptr<Graph> body = nullptr);
  // Returns 401 if the stream does not capture; 903 on a forked stream, which invalidates the
  // capture. Otherwise the capture ends: with 901 if it was invalidated, 908 on the wrong thread,
  // 904 if forked work was not joined.
  // A failed capture to a body destroys the body.
  Code end(const HostStream& stream, const ThreadState& caller, std::shared_ptr<Graph>* graph);
  // Returns 401 if the stream does not capture, 1 for nodes of another graph.
  static Code set_dependencies(HostStream& stream, std::span<const NodeHandle> nodes);
  Code info(const HostStream& stream, CaptureInfo* info);
  // Removes a destroyed stream from its capture; ends the capture if the stream is its origin.
  void forget(const HostStream& stream);

  // Checks a potentially unsafe call: returns 900 and invalidates every capture that forbids the
  // call to `caller`.
  Code admit_unsafe(const ThreadState& caller);
  // Checks a use of the legacy stream: returns 906 while a blocking stream captures, in every mode
  // and from every thread.
  Code admit_legacy();
  // Checks work on a stream, captured or not: returns 906 or 901.
  Code admit_work(const HostStream& stream);
  // Checks an allocation or a free in the order of a stream: as work if the stream captures,
  // otherwise also as a potentially unsafe call.
  Code admit_in_order(const HostStream& stream, const ThreadState& caller);
  // Checks a launch of an executable graph: returns 906, or 900 on a stream that captures.
  Code admit_launch(const HostStream& stream);
  // Returns `code`. A kernel launch with impossible dimensions invalidates the stream's capture.
  Code refuse_launch(const HostStream& stream, Code code);
  // The next two check a synchronization or a query: a capturing stream returns 900 in every mode.
  Code admit_wait(const HostStream& stream, const ThreadState& caller);
  Code admit_wait(const HostEvent& event, const ThreadState& caller);
  Code admit_wait(int device, const ThreadState& caller);

  // Checks a query about the stream itself: returns 900 on a capturing stream, in every mode and
  // from every thread, and 906 as admit_legacy() does.
  Code admit_question(const HostStream& stream);

  // The next two require that admit_work() returned kSuccess; append() requires a capturing stream.
  void append(HostStream& stream, Work work);
  void record(const HostStream& stream, HostEvent& event);

  // Makes `stream` wait for the event: a fork, a join, or no effect.
  Code wait(const std::shared_ptr<HostStream>& stream, const HostEvent& event);

  // Returns the graph that an open capture builds; null if no open capture has this handle.
  std::shared_ptr<Graph> find_graph(GraphHandle handle) const;

 private:
  Code merge(HostStream& stream, const HostEvent& event);
  void close(Capture& capture);

  std::vector<std::shared_ptr<Capture>> open_;
};

}  // namespace cgtree::host
