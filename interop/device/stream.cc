// Streams over the functions of a device, and the thread's stack of current streams.
#include "interop/device/stream.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "interop/device/device.h"

namespace cgtree {

StreamRef::StreamRef(Device device, StreamHandle handle)
    : api_(&device_api(device)), device_(device), handle_(handle) {
}

GraphAPI& StreamRef::graphs() const {
  if (api_ == nullptr) throw InvalidArgument("no stream given: this StreamRef is null");
  GraphAPI* graphs = api_->graphs();
  if (graphs == nullptr) {
    throw InvalidArgument(
        fmt::format("device {} has neither events nor graphs", to_string(device_)));
  }
  return *graphs;
}

void* StreamRef::native() const noexcept {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(handle_));
}

void StreamRef::synchronize() const {
  check(api_->synchronize_stream(handle_), "synchronize stream");
}

bool StreamRef::is_capturing() const {
  GraphAPI* graphs = api_ == nullptr ? nullptr : api_->graphs();
  if (graphs == nullptr) return false;
  CaptureInfo info;
  check(graphs->capture_info(handle_, &info), "query whether the stream captures");
  return info.status != CaptureStatus::kNone;
}

void StreamRef::wait_for(StreamRef other) const {
  if (*this == other) return;
  if (api_ == nullptr || other.api_ == nullptr) {
    throw InvalidArgument("no stream given: this StreamRef is null");
  }
  if (device_.type != other.device_.type) {
    throw InvalidArgument(fmt::format("a stream of {} cannot wait for one of {}",
                                      to_string(device_), to_string(other.device_)));
  }
  check(api_->sync_stream_from_to(other.device_.id, other.handle_, handle_),
        "make a stream wait for another");
}

Stream::Stream(Device device, StreamKind kind) {
  DeviceAPI& api = device_api(device);
  StreamHandle handle = StreamHandle::kNull;
  check(api.create_stream(device.id, kind, &handle), "create stream");
  ref_ = StreamRef(api, device, handle);
}

Stream::~Stream() {
  if (!ref_) return;
  const Code code = ref_.api().destroy_stream(ref_.handle());
  if (!ok(code)) log_event(LogLevel::kError, "stream_lost error={}", name(code));
}

Stream::Stream(Stream&& other) noexcept : ref_(std::exchange(other.ref_, {})) {
}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(ref_, other.ref_);
  return *this;
}

namespace {

// They are per thread, as in CUDA and TVM: a step function must find its stream without being
// handed one.
thread_local StreamRef t_current;
thread_local std::uint64_t t_scopes_opened = 0;

}  // namespace

StreamRef current_stream() {
  if (!t_current) {
    throw InvalidArgument(
        "no stream is current on this thread: call this inside a step function, or open a "
        "StreamScope");
  }
  return t_current;
}

StreamRef current_stream_or_none() noexcept {
  return t_current;
}

std::uint64_t stream_scopes_opened() noexcept {
  return t_scopes_opened;
}

StreamScope::StreamScope(StreamRef stream) noexcept : previous_(t_current) {
  ++t_scopes_opened;
  t_current = stream;
}

StreamScope::~StreamScope() {
  t_current = previous_;
}

}  // namespace cgtree
