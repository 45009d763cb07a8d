// Streams over the functions of a device, and the thread's stack of current streams.
#include "interop/device/stream.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/call_list.h"
#include "base/error.h"
#include "base/format.h"
#include "base/log_event.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/device/stream_identity.h"

namespace cgtree {

StreamRef::StreamRef(Device device, StreamHandle handle)
    : api_(&device_api(device)), device_(device), handle_(handle) {
}

GraphAPI& StreamRef::graphs() const {
  if (api_ == nullptr) throw InvalidArgument("no stream given: this StreamRef is null");
  GraphAPI* graphs = api_->graphs();
  if (graphs == nullptr) {
    throw InvalidArgument(
        str_format("device {} has neither events nor graphs", to_string(device_)));
  }
  return *graphs;
}

DeviceScope StreamRef::make_device_current() const {
  return DeviceScope(*api_, device_.id);
}

void* StreamRef::native() const noexcept {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(handle_));
}

std::optional<DeviceScope> StreamRef::name_default() const {
  using Scope = std::optional<DeviceScope>;
  return is_default() ? Scope(std::in_place, *api_, device_.id) : Scope(std::nullopt);
}

void StreamRef::synchronize() const {
  const auto current = name_default();
  check(api_->synchronize_stream(handle_), "synchronize stream");
}

bool StreamRef::is_capturing() const {
  GraphAPI* graphs = api_ == nullptr ? nullptr : api_->graphs();
  if (graphs == nullptr) return false;
  const auto current = name_default();
  CaptureInfo info;
  check(graphs->capture_info(handle_, &info), "query whether the stream captures");
  return info.status != CaptureStatus::kNone;
}

std::uint64_t StreamRef::partition() const {
  std::uint64_t partition = 0;
  if (api_ == nullptr || is_default() || is_capturing()) return 0;
  check(api_->stream_partition(handle_, &partition), "ask a stream for its partition");
  return partition;
}

namespace {

// Scopes are numbered in the process, so that two threads never have the same number. A thread
// takes numbers in blocks; it needs another block at a multiple of their size, and at its first
// scope.
constexpr std::uint64_t kScopeNumbers = std::uint64_t{1} << 20;
std::atomic<std::uint64_t> next_scope_numbers{0};

}  // namespace

void StreamRef::wait_for(StreamRef other) const {
  if (*this == other) return;
  if (api_ == nullptr || other.api_ == nullptr) {
    throw InvalidArgument("no stream given: this StreamRef is null");
  }
  if (device_.type != other.device_.type) {
    throw InvalidArgument(str_format("a stream of {} cannot wait for one of {}", to_string(device_),
                                     to_string(other.device_)));
  }
  if (is_default() && device_ != other.device_) {
    // The other's device is current during the call, and its default stream would wait.
    Event event;
    event.record(other);
    event.make_wait(*this);
  } else {
    check(api_->sync_stream_from_to(other.device_.id, other.handle_, handle_),
          "make a stream wait for another");
  }
  if (StreamFork* const fork = frame().fork)
    fork->note_wait(*this, other, current_stream_or_none());
}

Event::~Event() {
  if (graphs_ == nullptr) return;
  const Code code = graphs_->destroy_event(handle_);
  if (!ok(code)) log_event(LogLevel::kError, "event_lost error={}", name(code));
}

Event::Event(Event&& other) noexcept
    : graphs_(std::exchange(other.graphs_, nullptr)),
      device_(other.device_),
      handle_(other.handle_) {
}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(graphs_, other.graphs_);
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}

void Event::record(StreamRef stream) {
  GraphAPI* const graphs = stream.api().graphs();
  if (graphs == nullptr) return stream.synchronize();
  const DeviceScope current(stream.api(), stream.device().id);  // an event belongs to a device
  if (graphs_ != graphs || device_ != stream.device()) {
    EventHandle made = EventHandle::kNull;
    check(graphs->create_event(&made), "create event");
    *this = Event();
    graphs_ = graphs;
    device_ = stream.device();
    handle_ = made;
  }
  check(graphs->record_event(handle_, stream.handle()), "record event");
}

void Event::make_wait(StreamRef stream) const {
  if (graphs_ == nullptr) return;
  const auto current = stream.name_default();
  check(graphs_->wait_event(stream.handle(), handle_), "wait for event");
}

void Event::synchronize() const {
  if (graphs_ != nullptr) check(graphs_->synchronize_event(handle_), "wait for event");
}

bool Event::is_reached() const {
  if (graphs_ == nullptr) return true;
  const Code code = graphs_->query_event(handle_);
  if (code == Code::kNotReady) return false;
  check(code, "query event");
  return true;
}

namespace {

// Streams belong to the process, and so does the list of functions to call before one is destroyed.
// Each is called without a lock, because it may wait for the device: another thread may have to
// make or destroy a stream before that wait can end.
CallList<const StreamWatch::Retired*>& watchers() {
  static auto* const made = new CallList<const StreamWatch::Retired*>;
  return *made;  // outlives every static that uses it
}

}  // namespace

StreamWatch::StreamWatch(Retired retired)
    : retired_(std::move(retired)), place_(watchers().add(&retired_)) {
}

StreamWatch::~StreamWatch() {
  watchers().remove(place_);
}

void retire_stream(StreamRef stream) noexcept {
  const StreamIdentity identity = known_identity_of(stream);
  watchers().call_until([&](const StreamWatch::Retired* retired) {
    (*retired)(stream, identity);
    return false;
  });
  for (StreamFork* fork = frame().fork; fork != nullptr; fork = fork->outer_)
    fork->note_end(stream);
  forget_stream(stream);
}

Stream::Stream(Device device, StreamKind kind) {
  DeviceAPI& api = device_api(device);
  StreamHandle handle = StreamHandle::kNull;
  check(api.create_stream(device.id, kind, &handle), "create stream");
  ref_ = StreamRef(api, device, handle);
  try {
    (void)identity_of(ref_);  // a capturing stream cannot be queried for its number
  } catch (...) {
    (void)api.destroy_stream(handle);
    throw;
  }
}

Stream::~Stream() {
  if (!ref_) return;
  retire_stream(ref_);
  const Code code = ref_.api().destroy_stream(ref_.handle());
  if (!ok(code)) log_event(LogLevel::kError, "stream_lost error={}", name(code));
}

Stream::Stream(Stream&& other) noexcept : ref_(std::exchange(other.ref_, {})) {
}

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(ref_, other.ref_);
  return *this;
}

StreamRef current_stream() {
  const StreamRef stream = current_stream_or_none();
  if (!stream) {
    throw InvalidArgument(
        "no stream is current on this thread: call this inside a step function, or open a "
        "StreamScope");
  }
  return stream;
}

StreamScope::StreamScope(StreamRef stream) noexcept : stream_(stream), outer_(frame().stream) {
  Frame& thread = frame();
  if (thread.last_stream_scope % kScopeNumbers == 0) [[unlikely]] {
    thread.last_stream_scope =
        next_scope_numbers.fetch_add(kScopeNumbers, std::memory_order_relaxed);
  }
  ++thread.last_stream_scope;
  thread.stream = this;
  if (thread.fork != nullptr) thread.fork->enter(stream);
}

// Scopes of other threads are not skipped.
StreamScope::~StreamScope() {
  Frame& thread = frame();
  StreamScope** place = &thread.stream;
  while (*place != nullptr && *place != this)
    place = &(*place)->outer_;
  if (*place == nullptr) return;
  *place = outer_;
  if (place == &thread.stream && thread.fork != nullptr)
    thread.fork->enter(current_stream_or_none());
}

StreamFork::StreamFork(StreamRef own) noexcept : own_(own), outer_(frame().fork) {
  frame().fork = this;
}

StreamFork::~StreamFork() {
  frame().fork = outer_;
}

void StreamFork::enter(StreamRef stream) noexcept {
  if (stream == own_ || sides_ > kMost) return;
  if (std::find(side_, side_ + sides_, stream) != side_ + sides_) return;
  if (sides_ < kMost) side_[sides_] = stream;
  ++sides_;
}

// A current stream may get more work, so it has not joined yet.
void StreamFork::note_wait(StreamRef waiting, StreamRef other, StreamRef current) noexcept {
  if (other == own_) enter(waiting);
  if (waiting != own_ || other == current || sides_ > kMost) return;
  sides_ = static_cast<int>(std::remove(side_, side_ + sides_, other) - side_);
}

void StreamFork::note_end(StreamRef stream) noexcept {
  std::replace(side_, side_ + std::min(sides_, kMost), stream, StreamRef());
}

}  // namespace cgtree
