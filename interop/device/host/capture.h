// CaptureTable: the captures that are open, and CUDA's rules on what they forbid.
//
// Every rule and number is what a driver answered (driver 580, CUDA 13.0). A capture that a rule
// invalidates stays open, refuses work with 901, and still forbids what it forbade, until it is
// ended.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"
#include "interop/device/host/graph.h"
#include "interop/device/host/work_queue.h"

namespace cgtree::host {

struct Capture;

// Where nothing is queued, work runs on the thread that submits it, before the verb returns, and
// `order` keeps what several threads submit to one stream apart. What is not const belongs to the
// runtime's mutex, but for `order`.
struct HostStream {
  HostStream(StreamHandle stream_handle, int device_id, StreamKind stream_kind,
             std::uint64_t lane_number)
      : handle(stream_handle), device(device_id), kind(stream_kind), lane(lane_number) {}

  bool is_legacy() const noexcept { return handle == StreamHandle::kLegacy; }

  const StreamHandle handle;
  const int device;
  const StreamKind kind;
  const std::uint64_t lane;  // never used twice, unlike a handle
  std::mutex order;
  OperationPtr last;                 // queued on it; null: nothing yet
  std::shared_ptr<Capture> capture;  // null: not capturing
  std::vector<NodeHandle> tails;     // what the next node would depend on; empty if not capturing
};

// The state at the last record; a wait takes the state at the time of the wait.
struct HostEvent {
  bool recorded = false;
  std::shared_ptr<Capture> capture;  // not null: recorded in this capture, which may have ended
  std::vector<NodeHandle> nodes;     // of that capture; the streams' tails at the record
  OperationPtr operation;            // complete when this is done
};

struct Capture {
  std::uint64_t id;
  CaptureMode mode;
  std::uint64_t thread;  // the thread that began it
  const HostStream* origin;
  std::unique_ptr<Graph> graph;
  std::vector<std::shared_ptr<HostStream>> streams;  // all that are in it, `origin` first
  CaptureStatus status = CaptureStatus::kActive;     // kNone once ended
};

// Who calls: a thread and the mode it has exchanged to.
struct Caller {
  std::uint64_t thread;
  CaptureMode mode;
};

// Threads: none of its own; the runtime's mutex is held around every call.
class CaptureTable {
 public:
  // 906 when a blocking stream captures, 900 on the legacy stream, 401 on a stream that is in a
  // capture already. `id` becomes the capture's id and its graph's handle.
  Code begin(const std::shared_ptr<HostStream>& stream, CaptureMode mode, const Caller& caller,
             std::uint64_t id);
  // 401 when not capturing; 903 on a forked stream, which invalidates. Else the capture is over:
  // 901 if it was invalidated, 908 on the wrong thread, 904 if forked work was not joined.
  Code end(const HostStream& stream, const Caller& caller, std::unique_ptr<Graph>* graph);
  Code info(const HostStream& stream, CaptureInfo* info);
  // A destroyed stream leaves its capture; the origin takes the capture with it.
  void forget(const HostStream& stream);

  // What a potentially unsafe call asks first: 900 for every capture that forbids it to `caller`,
  // and they are invalid from then on.
  Code admit_unsafe(const Caller& caller);
  // What every use of the legacy stream asks first: 906 while a blocking stream captures, in every
  // mode and from every thread.
  Code admit_legacy();
  // Before work on a stream, captured or not: 906 or 901.
  Code admit_work(const HostStream& stream);
  // Before a launch of an executable graph: 906, or 900 on a stream that captures.
  Code admit_launch(const HostStream& stream);
  // A kernel launch with impossible dimensions invalidates the capture it was meant for.
  Code refuse_launch(const HostStream& stream, Code code);
  // Before synchronising or querying: a stream that captures answers 900 in every mode.
  Code admit_wait(const HostStream& stream, const Caller& caller);
  Code admit_wait(const HostEvent& event, const Caller& caller);
  Code admit_wait(int device, const Caller& caller);

  // Require admit_work, and for the first a stream that captures.
  void append(HostStream& stream, Work work);
  void record(const HostStream& stream, HostEvent& event);

  // Makes `stream` wait: a fork, a join, or nothing at all.
  Code wait(const std::shared_ptr<HostStream>& stream, const HostEvent& event);

  // The graph that an open capture builds; null if there is none of this handle.
  const Graph* find_graph(GraphHandle handle) const;

 private:
  Code merge(HostStream& stream, const HostEvent& event);
  void close(Capture& capture);

  std::vector<std::shared_ptr<Capture>> open_;
};

}  // namespace cgtree::host
