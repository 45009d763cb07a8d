// HostStream and HostEvent: what the host device knows of a stream and of an event.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "interop/device_api.h"
#include "interop/handles.h"

namespace cgtree::host {

struct Capture;

// Work runs on the thread that submits it, before the verb returns; `order` keeps what several
// threads submit to one stream apart. `capture` and `tails` belong to the runtime's mutex.
struct HostStream {
  HostStream(StreamHandle stream_handle, int device_id, StreamKind stream_kind)
      : handle(stream_handle), device(device_id), kind(stream_kind) {}

  bool is_legacy() const noexcept { return handle == StreamHandle::kLegacy; }

  const StreamHandle handle;
  const int device;
  const StreamKind kind;
  std::mutex order;
  std::shared_ptr<Capture> capture;  // null: not capturing
  std::vector<NodeHandle> tails;     // what the next node would depend on; empty if not capturing
};

// The state at the last record; a wait takes the state at the time of the wait.
struct HostEvent {
  bool recorded = false;
  std::shared_ptr<Capture> capture;  // not null: recorded in this capture, which may have ended
  std::vector<NodeHandle> nodes;     // of that capture; the streams' tails at the record
};

}  // namespace cgtree::host
