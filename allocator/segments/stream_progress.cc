// Records events in batches, and remembers which have completed.
#include "allocator/segments/stream_progress.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "base/log_event.h"

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
    for (const auto& [number, event] : stream.pending)
      events_->give_back(*event.id);
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

// Forgets ended streams all of whose points are complete. No state is made for them again.
// Requires: the lock is held.
void StreamProgress::forget_ended() noexcept {
  std::erase_if(streams_, [this](const auto& entry) {
    const auto& [id, stream] = entry;
    return stream.is_retired && stream.completed >= stream.begun && stream.pending.empty() &&
           stream.uses == 0 && events_ != nullptr && !events_->exists(id);
  });
}

StreamPoint StreamProgress::now(StreamId id) noexcept {
  if (id == kIdle) return {id, 0};
  const std::lock_guard lock(mutex_);
  try {
    Stream* const stream = find_or_make(id);
    if (stream == nullptr) return {id, 0};
    if (stream->is_retired) return {id, stream->begun};
    stream->is_asked = true;
    return {id, stream->begun + 1};
  } catch (const std::bad_alloc&) {
    return {id, kNever};
  }
}

// A stream with points is known until all of them are complete.
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
  Lock lock(mutex_);
  for (auto& [id, stream] : streams_)
    look_at(lock, id, stream);
  forget_ended();
}

// Returns true if no thread is recording an event up to `last`.
bool StreamProgress::Stream::has_recorded(std::uint64_t last) const {
  return std::all_of(pending.begin(), pending.upper_bound(last),
                     [](const auto& entry) { return entry.second.id.has_value(); });
}

void StreamProgress::look_at(Lock& lock, StreamId id, Stream& stream) noexcept {
  const Use use(stream);
  try {
    // Pending events are useful even if the stream no longer exists.
    query(stream);
    // A stream on which another thread records may be full: only that thread should wait for it.
    if (!stream.is_asked || stream.is_retiring || !stream.has_recorded(stream.begun)) return;
    const bool is_behind_none = settle(stream);
    if (!record(lock, id, stream)) return;
    stream.has_failed = false;
    if (is_behind_none) query(stream);
  } catch (const std::exception& error) {
    (void)settle(stream);
    if (!std::exchange(stream.has_failed, true)) log_failure("poll", id, error);
  }
}

// Queries the pending events, up to the first that is not complete.
void StreamProgress::query(Stream& stream) {
  for (auto& [number, event] : stream.pending) {
    if (event.is_done) continue;
    if (!event.id || !events_->is_complete(*event.id)) break;
    event.is_done = true;
  }
  (void)settle(stream);
}

// Completes the points of finished events, up to the first unfinished one. Returns whether none is
// unfinished.
bool StreamProgress::settle(Stream& stream) noexcept {
  for (auto next = stream.pending.begin(); next != stream.pending.end();) {
    const auto entry = next++;
    const Event& event = entry->second;
    if (!event.is_done) return false;
    stream.completed = std::max(stream.completed, entry->first);
    if (event.waits > 0) continue;
    events_->give_back(*event.id);
    stream.pending.erase(entry);
  }
  return true;
}

// Records the next event of the stream, without the lock. Points taken meanwhile need the next
// event. Returns false if the stream captures.
bool StreamProgress::record(Lock& lock, StreamId id, Stream& stream) {
  const std::uint64_t number = stream.begun + 1;
  Event& event = stream.pending[number];
  stream.begun = number;
  stream.is_asked = false;
  lock.unlock();
  std::exception_ptr failure;
  std::optional<EventId> recorded;
  try {
    recorded = events_->record(id);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  event.id = recorded;
  if (!recorded) {
    stream.pending.erase(number);
    stream.is_asked = true;  // a later event covers its points
  }
  recorded_.notify_all();
  if (failure) std::rethrow_exception(failure);
  return recorded.has_value();
}

// Waits, without the lock, for each event that has been recorded, or is being recorded. Returns
// false if the device failed; the event then stays pending.
bool StreamProgress::wait(Lock& lock, StreamId id, Stream& stream) noexcept {
  const Use use(stream);
  recorded_.wait(lock, [&] { return !stream.is_retiring && stream.has_recorded(stream.begun); });
  const std::uint64_t last = stream.begun;
  for (;;) {
    const auto entry = std::find_if(stream.pending.begin(), stream.pending.upper_bound(last),
                                    [](const auto& other) { return !other.second.is_done; });
    if (entry == stream.pending.end() || entry->first > last) return true;
    Event& event = entry->second;
    ++event.waits;
    lock.unlock();
    bool done = true;
    try {
      events_->wait(*event.id);
    } catch (const std::exception& error) {
      log_failure("wait", id, error);
      done = false;
    }
    lock.lock();
    --event.waits;
    if (!done) return false;
    event.is_done = true;
    (void)settle(stream);
  }
}

bool StreamProgress::wait_all() noexcept {
  if (events_ == nullptr) return false;
  const GateEntry entry(gate_);
  if (!entry) return false;
  bool succeeded = true;
  Lock lock(mutex_);
  for (auto& [id, stream] : streams_) {
    if (!stream.is_asked || stream.is_retiring) continue;
    const Use use(stream);
    try {
      record(lock, id, stream) ? stream.has_failed = false : succeeded = false;
    } catch (const std::exception& error) {
      succeeded = false;
      if (!std::exchange(stream.has_failed, true)) log_failure("wait", id, error);
    }
  }
  for (auto& [id, stream] : streams_) {
    if (!wait(lock, id, stream)) succeeded = false;
  }
  forget_ended();
  return succeeded;
}

void StreamProgress::cover(StreamId id) noexcept {
  Lock lock(mutex_);
  const auto found = streams_.find(id);
  if (found != streams_.end() && !found->second.is_retiring) cover(lock, id, found->second);
}

void StreamProgress::cover(Lock& lock, StreamId id, Stream& stream) noexcept {
  if (!stream.is_asked || events_ == nullptr) return;
  const Use use(stream);
  try {
    (void)record(lock, id, stream);
  } catch (const std::exception& error) {
    log_failure("cover", id, error);
  }
}

void StreamProgress::retire(StreamId id) noexcept {
  Lock lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  Stream& stream = found->second;
  // No other thread records from now on, and threads that are recording must return before the
  // stream ends.
  stream.is_retiring = true;
  const Use use(stream);
  recorded_.wait(lock, [&] { return stream.has_recorded(stream.begun); });
  if (!stream.is_retired) cover(lock, id, stream);
  if (stream.is_asked) {
    // The stream gets no more work, so its last event also covers points that were taken while it
    // was recorded. Without that event, uncovered points stay open.
    auto last = stream.pending.extract(stream.begun);
    ++stream.begun;
    if (!last.empty()) {
      last.key() = stream.begun;
      stream.pending.insert(std::move(last));
    }
  }
  stream.is_asked = false;
  stream.is_retiring = false;
  stream.is_retired = true;
  recorded_.notify_all();
}

StreamId StreamProgress::in_source(StreamId id) noexcept {
  if (id == kIdle) return id;
  Lock lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end()) return events_ != nullptr && !events_->exists(id) ? kIdle : id;
  if (!found->second.is_retired) return id;
  (void)wait(lock, id, found->second);
  forget_ended();
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
