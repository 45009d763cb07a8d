// Stream and StreamRef: a queue of work on a device, owned and borrowed; current_stream(): the
// stream on which a step function launches its work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/frame.h"
#include "interop/device/device.h"
#include "interop/device/handles.h"

namespace cgtree {

// interop/device/device_api.h and graph_api.h.
class DeviceAPI;
class DeviceScope;
class GraphAPI;

// A StreamRef is a borrowed stream, passed by value.
class StreamRef {
 public:
  StreamRef() = default;  // null
  // Throws InvalidArgument if the device does not exist. The next constructor does not check.
  StreamRef(Device device, StreamHandle handle);
  StreamRef(DeviceAPI& api, Device device, StreamHandle handle) noexcept
      : api_(&api), device_(device), handle_(handle) {}

  // Returns whether there is a stream. The default streams count as one.
  explicit operator bool() const noexcept { return api_ != nullptr; }
  bool operator==(const StreamRef&) const = default;

  // Requires: there is a stream.
  DeviceAPI& api() const noexcept { return *api_; }
  // Throws InvalidArgument if this is null, or if the device has no graphs.
  GraphAPI& graphs() const;
  // The next two are Device() and kNull for a null stream.
  Device device() const noexcept { return device_; }
  StreamHandle handle() const noexcept { return handle_; }

  // Returns the device's own handle: on the cuda device,
  // static_cast<cudaStream_t>(stream.native()).
  void* native() const noexcept;

  // Makes the stream's device current while the result lives. The handle of a default stream refers
  // to another stream for each current device.
  DeviceScope make_device_current() const;

  // Blocks the host until all work enqueued so far is done.
  void synchronize() const;
  // Returns whether any code captures the stream, even if the capture is invalidated; false for a
  // null stream. Throws DeviceError.
  bool is_capturing() const;
  // Returns true for the per-thread default stream, which differs by thread.
  bool is_per_thread() const noexcept { return handle_ == StreamHandle::kPerThread; }
  // Returns true for the default streams: which streams they are depends on the current
  // device.
  bool is_default() const noexcept { return handle_ <= StreamHandle::kPerThread; }
  // Returns DeviceAPI::stream_partition(); 0 for a null stream, a default stream, and one that
  // captures, which cannot be queried. Throws DeviceError.
  std::uint64_t partition() const;
  // Makes work enqueued here from now on wait for work enqueued on `other` so far. `other` may be
  // of another device of the same kind. Throws InvalidArgument for another kind, and if either is
  // null.
  void wait_for(StreamRef other) const;

 private:
  friend class Event;
  // As make_device_current(), for calls that only take the stream.
  std::optional<DeviceScope> name_default() const;

  DeviceAPI* api_ = nullptr;
  Device device_;
  StreamHandle handle_ = StreamHandle::kNull;
};

// An Event is a point in the work of a stream; move-only. The stream may be destroyed before.
class Event {
 public:
  Event() = default;
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  // Moves the event to the point after the work enqueued on `stream` so far. A device without
  // events blocks the host instead. Throws DeviceError.
  void record(StreamRef stream);
  // Makes work enqueued on `stream` from now on wait for the point. Throws DeviceError.
  void make_wait(StreamRef stream) const;
  // Blocks the host until the point is reached. Throws DeviceError.
  void synchronize() const;
  // Returns whether the point is reached; true before the first record(). Throws DeviceError.
  bool is_reached() const;

 private:
  GraphAPI* graphs_ = nullptr;  // null before the first record()
  Device device_;
  EventHandle handle_ = EventHandle::kNull;
};

// While a StreamWatch lives, its function is called before a stream is destroyed, on the thread
// that destroys it, without a lock held. The function must not throw, and must not end its own
// watch. Several threads may call it at once.
class StreamWatch {
 public:
  // The identity (stream_identity.h) is kNone if it was never requested.
  using Retired = std::function<void(StreamRef stream, StreamIdentity identity)>;
  // Watches streams that are destroyed from now on.
  explicit StreamWatch(Retired retired);
  // Waits for a call in progress.
  ~StreamWatch();
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

 private:
  const Retired retired_;
  const std::size_t place_;  // in the list of all watches
};

// Must be called before a stream is destroyed that was current during a call, or on which memory of
// ours was used; the destructor of Stream calls it. Pending work of the stream stays in order with
// later calls on other streams.
void retire_stream(StreamRef stream) noexcept;

// A Stream owns a stream; move-only.
class Stream {
 public:
  // Throws InvalidArgument if the device does not exist; DeviceError.
  explicit Stream(Device device, StreamKind kind = StreamKind::kNonBlocking);
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  // The next two are valid while the stream lives, here or where it is moved to.
  StreamRef ref() const noexcept { return ref_; }
  operator StreamRef() const noexcept { return ref_; }
  // Blocks the host until all work enqueued so far is done.
  void synchronize() const { ref_.synchronize(); }

 private:
  StreamRef ref_;
};

// Returns, inside a step function, the context's stream (which may be capturing); outside, the
// stream of the innermost StreamScope of this thread. Throws InvalidArgument if there is neither.
StreamRef current_stream();

// Returns the number of the last StreamScope that this thread opened; 0 before the first. No two
// scopes of the process have the same number, so two equal results are of one thread that opened
// none in between.
inline std::uint64_t last_stream_scope() noexcept {
  return frame().last_stream_scope;
}

// A StreamScope makes `stream` current on this thread until it ends. Scopes nest: the stream of the
// innermost one is current. A scope that ends before its inner scopes leaves them unchanged, so
// that the stream of an ended scope never stays current. It must end on the thread where it began.
class StreamScope {
 public:
  // Borrows the stream; a null one makes none current.
  explicit StreamScope(StreamRef stream) noexcept;
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

  // Returns the argument of the constructor.
  StreamRef stream() const noexcept { return stream_; }

 private:
  const StreamRef stream_;
  StreamScope* outer_;
};

// As current_stream(), but returns null instead of throwing. It is inlined: each call uses it.
inline StreamRef current_stream_or_none() noexcept {
  const StreamScope* const innermost = frame().stream;
  return innermost == nullptr ? StreamRef() : innermost->stream();
}

// A StreamFork follows, during its lifetime, the streams that its thread forks from its own, or
// makes current beside it: work there may run at the same time as work on its own, until that
// stream waits for it.
//
//   StreamFork fork(main);
//   side.wait_for(main);               fork.is_joined() == false
//   { StreamScope scope(side); ... }
//   main.wait_for(side);               fork.is_joined() == true
//
// It must end on the thread where it began, in reverse order of construction.
class StreamFork {
 public:
  // Borrows the stream of the thread's own work.
  explicit StreamFork(StreamRef own) noexcept;
  ~StreamFork();
  StreamFork(const StreamFork&) = delete;
  StreamFork& operator=(const StreamFork&) = delete;

  // Returns true if the own stream has waited for all the others since. Joins by other means than
  // StreamRef::wait_for() are not detected.
  bool is_joined() const noexcept { return sides_ == 0; }

 private:
  friend class StreamScope;
  friend class StreamRef;
  friend void retire_stream(StreamRef stream) noexcept;
  static constexpr int kMost = 8;

  void enter(StreamRef stream) noexcept;
  void note_wait(StreamRef waiting, StreamRef other, StreamRef current) noexcept;
  void note_end(StreamRef stream) noexcept;

  const StreamRef own_;
  StreamRef side_[kMost];  // null for a stream that ended before it joined
  int sides_ = 0;          // kMost + 1: too many to follow
  StreamFork* const outer_;
};

}  // namespace cgtree
