// Records events in batches, and remembers which are complete.
#include "allocator/segments/stream_progress.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "base/log.h"

namespace cgtree {
namespace {

constexpr std::uint64_t kNever = UINT64_MAX;

void log_failure(const char* call, StreamId id, const std::exception& error) noexcept {
  log_event(LogLevel::kError, "stream_event_failed call={} stream={:#x} error=\"{}\"", call, id,
            error.what());
}

}  // namespace

StreamProgress::~StreamProgress() {
  for (auto& [id, stream] : streams_) {
    for (const Event& event : stream.pending)
      events_->give_back(event.id);
  }
}

void StreamProgress::begin(StreamId id) noexcept {
  if (id == kIdle) return;
  const std::lock_guard lock(mutex_);
  try {
    (void)find_or_make(id);
  } catch (const std::bad_alloc&) {  // now() tries again
  }
}

// Returns null if the stream has ended and is forgotten. Requires: the lock is held.
StreamProgress::Stream* StreamProgress::find_or_make(StreamId id) {
  const auto found = streams_.find(id);
  if (found != streams_.end()) return &found->second;
  if (events_ != nullptr && !events_->exists(id)) return nullptr;
  return &streams_[id];
}

// Forgets the streams that have ended and all of whose points are complete. From the end on no
// state is made for them again. Requires: the lock is held.
void StreamProgress::forget_ended() noexcept {
  std::erase_if(streams_, [this](const auto& entry) {
    const auto& [id, stream] = entry;
    return stream.is_retired && stream.completed >= stream.recorded && stream.pending.empty() &&
           stream.waiting == 0 && events_ != nullptr && !events_->exists(id);
  });
}

StreamPoint StreamProgress::now(StreamId id) noexcept {
  if (id == kIdle) return {id, 0};
  const std::lock_guard lock(mutex_);
  try {
    Stream* const stream = find_or_make(id);
    if (stream == nullptr) return {id, 0};
    if (stream->is_retired) return {id, stream->recorded};
    stream->is_asked = true;
    return {id, stream->recorded + 1};
  } catch (const std::bad_alloc&) {
    return {id, kNever};
  }
}

// A stream of which a point was taken is known until all its points are complete.
bool StreamProgress::is_complete(const StreamPoint& point) const noexcept {
  if (point.number == 0) return true;
  if (point.number == kNever) return false;
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(point.stream);
  return found == streams_.end() || point.number <= found->second.completed;
}

void StreamProgress::poll() noexcept {
  if (events_ == nullptr) return;
  const GateEntry entry(gate_);
  if (!entry) return;
  const std::lock_guard lock(mutex_);
  for (auto& [id, stream] : streams_)
    look_at(id, stream);
  forget_ended();
}

void StreamProgress::look_at(StreamId id, Stream& stream) noexcept {
  try {
    // Pending events are of use even if the stream does not exist any more.
    while (!stream.pending.empty() && events_->is_complete(stream.pending.front().id)) {
      complete(stream, stream.pending.front());
      stream.pending.pop_front();
    }
    if (!stream.is_asked || !record(id, stream)) return;
    stream.has_failed = false;
    if (stream.pending.size() > 1 || !events_->is_complete(stream.pending.front().id)) return;
    complete(stream, stream.pending.front());
    stream.pending.pop_front();
  } catch (const std::exception& error) {
    if (!std::exchange(stream.has_failed, true)) log_failure("poll", id, error);
  }
}

// Returns false if the stream captures.
bool StreamProgress::record(StreamId id, Stream& stream) {
  stream.pending.push_back({stream.recorded + 1, 0});
  std::optional<EventId> event;
  try {
    event = events_->record(id);
  } catch (...) {
    stream.pending.pop_back();
    throw;
  }
  if (!event) {
    stream.pending.pop_back();
    return false;
  }
  stream.pending.back().id = *event;
  ++stream.recorded;
  stream.is_asked = false;
  return true;
}

void StreamProgress::complete(Stream& stream, const Event& event) noexcept {
  events_->give_back(event.id);
  stream.completed = std::max(stream.completed, event.number);
}

// Takes the pending events, for wait(). Requires: the lock is held, and `taken` is empty.
void StreamProgress::take(Stream& stream, Events& taken) noexcept {
  taken.swap(stream.pending);
  if (!taken.empty()) ++stream.waiting;
}

// Returns false if the device failed.
bool StreamProgress::wait(StreamId id, const Events& taken) noexcept {
  if (taken.empty()) return true;
  bool done = true;
  try {
    for (const Event& event : taken)
      events_->wait(event.id);
  } catch (const std::exception& error) {
    log_failure("wait", id, error);
    done = false;
  }
  const std::lock_guard lock(mutex_);
  Stream& stream = streams_.at(id);
  for (const Event& event : taken)
    done ? complete(stream, event) : events_->give_back(event.id);
  if (!done) stream.is_asked = !stream.is_retired;  // a later event covers their points
  --stream.waiting;
  wait_ended_.notify_all();
  forget_ended();
  return done;
}

// `succeeded` becomes false if some points cannot be waited for.
std::map<StreamId, StreamProgress::Events> StreamProgress::take_all(bool& succeeded) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, stream] : streams_) {
    try {
      if (!stream.is_asked) continue;
      record(id, stream) ? stream.has_failed = false : succeeded = false;
    } catch (const std::exception& error) {
      succeeded = false;
      if (!std::exchange(stream.has_failed, true)) log_failure("wait", id, error);
    }
  }
  std::map<StreamId, Events> taken;
  for (const auto& [id, stream] : streams_)
    taken[id];
  for (auto& [id, stream] : streams_)
    take(stream, taken[id]);
  return taken;
}

bool StreamProgress::wait_all() noexcept {
  if (events_ == nullptr) return false;
  const GateEntry entry(gate_);
  if (!entry) return false;
  bool succeeded = true;
  try {
    for (const auto& [id, events] : take_all(succeeded)) {
      if (!wait(id, events)) succeeded = false;
    }
  } catch (const std::exception& error) {
    log_failure("wait", kIdle, error);
    succeeded = false;
  }
  return succeeded;
}

void StreamProgress::cover(StreamId id) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(id);
  if (found != streams_.end()) cover_locked(id, found->second);
}

void StreamProgress::cover_locked(StreamId id, Stream& stream) noexcept {
  if (!stream.is_asked || events_ == nullptr) return;
  try {
    (void)record(id, stream);
  } catch (const std::exception& error) {
    log_failure("cover", id, error);
  }
}

StreamPoint StreamProgress::retire(StreamId id, Work work) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end()) return {id, 0};
  Stream& stream = found->second;
  if (work == Work::kMayBePending && !stream.is_retired) cover_locked(id, stream);
  // Points that no event covers stay open.
  if (stream.is_asked) ++stream.recorded;
  stream.is_asked = false;
  stream.is_retired = true;
  if (work == Work::kHasEnded) stream.completed = stream.recorded;
  return {id, stream.recorded};
}

StreamId StreamProgress::in_source(StreamId id) noexcept {
  if (id == kIdle) return id;
  std::unique_lock lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end()) return events_ != nullptr && !events_->exists(id) ? kIdle : id;
  if (!found->second.is_retired) return id;
  Events taken;
  take(found->second, taken);
  lock.unlock();
  (void)wait(id, taken);
  lock.lock();
  wait_ended_.wait(lock, [&] {
    const auto still = streams_.find(id);
    return still == streams_.end() || still->second.waiting == 0;
  });
  return kIdle;
}

std::size_t StreamProgress::pending_events() const {
  const std::lock_guard lock(mutex_);
  std::size_t events = 0;
  for (const auto& [id, stream] : streams_)
    events += stream.pending.size() + (stream.is_asked ? 1 : 0);
  return events;
}

}  // namespace cgtree
