// HostStream and HostEvent: what the host device knows of a stream and of an event.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "interop/device/device_api.h"
#include "interop/device/handles.h"
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

}  // namespace cgtree::host
