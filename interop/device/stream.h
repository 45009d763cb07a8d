// Stream and StreamRef: a queue of work on a device, owned and borrowed.
#pragma once

#include <cstdint>

#include "interop/device/device.h"
#include "interop/device/device_api.h"

namespace cgtree {

// A borrowed stream, passed by value. Every verb lives here.
class StreamRef {
 public:
  StreamRef() = default;  // names no stream
  StreamRef(Device device, StreamHandle handle);
  StreamRef(DeviceAPI& api, Device device, StreamHandle handle) noexcept
      : api_(&api), device_(device), handle_(handle) {}

  explicit operator bool() const noexcept { return api_ != nullptr; }
  bool operator==(const StreamRef&) const = default;

  DeviceAPI& api() const noexcept { return *api_; }
  // Throws InvalidArgument if the device knows no graphs.
  GraphAPI& graphs() const;
  Device device() const noexcept { return device_; }
  StreamHandle handle() const noexcept { return handle_; }

  // The device's own handle: on the cuda device, static_cast<cudaStream_t>(stream.native()).
  void* native() const noexcept;

  // Blocks the host until all work enqueued so far is done.
  void synchronize() const;
  bool is_capturing() const;
  // Work enqueued here from now on waits for what is enqueued on `other` so far. `other` may be of
  // another device of the same kind; throws InvalidArgument for another kind.
  void wait_for(StreamRef other) const;

 private:
  DeviceAPI* api_ = nullptr;
  Device device_;
  StreamHandle handle_ = StreamHandle::kNull;
};

// Owns a stream; move-only.
class Stream {
 public:
  explicit Stream(Device device, StreamKind kind = StreamKind::kNonBlocking);
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  StreamRef ref() const noexcept { return ref_; }
  operator StreamRef() const noexcept { return ref_; }
  void synchronize() const { ref_.synchronize(); }

 private:
  StreamRef ref_;
};

// Inside a step function, the context's stream (which may be capturing); outside, the stream of the
// innermost StreamScope. Throws InvalidArgument when there is neither.
StreamRef current_stream();

// As above, but answers a StreamRef that names no stream.
StreamRef current_stream_or_none() noexcept;

// How often a StreamScope was opened on this thread: tells whether one was since.
std::uint64_t stream_scopes_opened() noexcept;

// Makes `stream` current on this thread until the scope ends. Scopes nest.
class StreamScope {
 public:
  explicit StreamScope(StreamRef stream) noexcept;
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  StreamRef previous_;
};

}  // namespace cgtree
