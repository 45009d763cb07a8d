// Records and queries events.
#include "allocator/device/device_streams.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "interop/device/device_api.h"
#include "interop/device/stream_identity.h"

namespace cgtree {
namespace {

StreamId checked(StreamRef stream, StreamIdentity identity) {
  if (!stream.is_per_thread()) return static_cast<StreamId>(identity);
  throw InvalidArgument(
      "the per-thread default stream is another stream on each thread, and its memory would be "
      "freed on the wrong one; give a stream that was created, or the legacy stream");
}

// Throws for a failure, and removes it from the thread's last error. A capture of the caller's did
// not cause it, so the error is not a CaptureError.
void expect(GraphAPI& graphs, Code code, const char* call) {
  if (ok(code)) return;
  if (graphs.peek_last_error() == code) static_cast<void>(graphs.take_last_error());
  throw DeviceError(static_cast<int>(code), str_format("{} failed with {}", call, name(code)));
}

// Also returns true for the legacy stream while a stream ordered with it is captured.
bool is_captured(GraphAPI& graphs, StreamHandle stream) {
  CaptureInfo info;
  const Code code = graphs.capture_info(stream, &info);
  if (code == Code::kStreamCaptureImplicit) {
    if (graphs.peek_last_error() == code) static_cast<void>(graphs.take_last_error());
    return true;
  }
  expect(graphs, code, "query whether a stream captures");
  return info.status != CaptureStatus::kNone;
}

// Returns the stream; throws if it has ended.
StreamRef existing(StreamId stream) {
  if (const StreamRef found = find_stream(static_cast<StreamIdentity>(stream))) return found;
  throw DeviceError(static_cast<int>(Code::kInvalidResourceHandle),
                    str_format("stream {} has ended", stream));
}

}  // namespace

StreamId stream_id(StreamRef stream) {
  return checked(stream, identity_of(stream));
}

StreamId recent_stream_id(StreamRef stream) {
  return checked(stream, recent_identity_of(stream));
}

DeviceStreamEvents::DeviceStreamEvents(Device device) {
  static_cast<void>(StreamRef(device, StreamHandle::kNull).graphs());
}

DeviceStreamEvents::~DeviceStreamEvents() {
  for (const Event& event : made_) {
    if (event.handle == EventHandle::kNull) continue;  // it could not be made
    static_cast<void>(event.graphs.destroy_event(event.handle));
  }
}

// Keeps room in the list for every event, so that give_back() cannot fail. An event is made without
// the lock: the driver makes none while any stream is full.
DeviceStreamEvents::Event& DeviceStreamEvents::take(StreamRef stream) {
  Event* event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto unused = std::find_if(unused_.rbegin(), unused_.rend(), [&](const Event* other) {
      return &other->graphs == stream.api().graphs() && other->device == stream.device();
    });
    if (unused != unused_.rend()) {
      event = *unused;
      unused_.erase(std::next(unused).base());
    } else {
      if (unused_.capacity() < made_.size() + 1) unused_.reserve(2 * made_.size() + 8);
      event = &made_.emplace_back(Event{stream.graphs(), stream.device()});
    }
  }
  if (event->handle != EventHandle::kNull) return *event;
  try {
    const DeviceScope scope(stream.api(), stream.device().id);
    expect(event->graphs, event->graphs.create_event(&event->handle), "create an event");
  } catch (...) {
    event->handle = EventHandle::kNull;
    give_back(reinterpret_cast<EventId>(event));
    throw;
  }
  return *event;
}

bool DeviceStreamEvents::exists(StreamId stream) const noexcept {
  return static_cast<bool>(find_stream(static_cast<StreamIdentity>(stream)));
}

std::optional<EventId> DeviceStreamEvents::record(StreamId id) {
  const StreamRef stream = existing(id);
  GraphAPI& graphs = stream.graphs();
  const RelaxedCapture relaxed(&graphs);
  const DeviceScope scope(stream.api(), stream.device().id);  // for the legacy stream
  if (is_captured(graphs, stream.handle())) return std::nullopt;
  Event& event = take(stream);
  const auto made = reinterpret_cast<EventId>(&event);
  try {
    expect(graphs, graphs.record_event(event.handle, stream.handle()), "record an event");
    if (!is_captured(graphs, stream.handle())) return made;
  } catch (...) {
    give_back(made);
    throw;
  }
  give_back(made);  // a capture began meanwhile, and the event may belong to it
  return std::nullopt;
}

bool DeviceStreamEvents::is_complete(EventId id) {
  const Event& event = event_of(id);
  const RelaxedCapture relaxed(&event.graphs);
  const Code code = event.graphs.query_event(event.handle);
  if (code == Code::kNotReady) {
    // CUDA sets the thread's last error even for this code.
    if (event.graphs.peek_last_error() == code) {
      static_cast<void>(event.graphs.take_last_error());
    }
    return false;
  }
  expect(event.graphs, code, "query an event");
  return true;
}

void DeviceStreamEvents::wait(EventId id) {
  const Event& event = event_of(id);
  const RelaxedCapture relaxed(&event.graphs);
  expect(event.graphs, event.graphs.synchronize_event(event.handle), "wait for an event");
}

void DeviceStreamEvents::give_back(EventId id) noexcept {
  const std::lock_guard lock(mutex_);
  unused_.push_back(&event_of(id));
}

}  // namespace cgtree
