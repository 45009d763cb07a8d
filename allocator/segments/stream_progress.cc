// Records events in batches, and remembers which are complete.
#include "allocator/segments/stream_progress.h"

#include <algorithm>
#include <exception>

#include "base/log.h"

namespace cgtree {
namespace {

constexpr std::uint64_t kNever = UINT64_MAX;

void log_failure(const char* call, const std::exception& error) noexcept {
  log_event(LogLevel::kError, "stream_event_failed call={} error=\"{}\"", call, error.what());
}

}  // namespace

StreamProgress::~StreamProgress() {
  for (auto& [id, stream] : streams_) {
    for (const Event& event : stream.pending)
      events_->give_back(event.id);
  }
}

StreamPoint StreamProgress::now(StreamId id) noexcept {
  if (id == kIdle) return {id, 0};
  const std::lock_guard lock(mutex_);
  try {
    Stream& stream = streams_[id];
    stream.is_asked = true;
    return {id, stream.recorded + 1};
  } catch (const std::bad_alloc&) {
    return {id, kNever};
  }
}

bool StreamProgress::is_complete(const StreamPoint& point) const noexcept {
  if (point.number == 0) return true;
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(point.stream);
  return found != streams_.end() && point.number <= found->second.completed;
}

void StreamProgress::poll() noexcept {
  if (events_ == nullptr) return;
  const GateEntry entry(gate_);
  if (!entry) return;
  const std::lock_guard lock(mutex_);
  try {
    record_asked();
    for (auto& [id, stream] : streams_) {
      while (!stream.pending.empty() && events_->is_complete(stream.pending.front().id)) {
        complete(stream, stream.pending.front());
        stream.pending.pop_front();
      }
    }
  } catch (const std::exception& error) {
    log_failure("poll", error);
  }
}

void StreamProgress::record_asked() {
  for (auto& [id, stream] : streams_) {
    if (stream.is_asked) record(id, stream);
  }
}

void StreamProgress::record(StreamId id, Stream& stream) {
  stream.pending.push_back({stream.recorded + 1, 0});
  try {
    stream.pending.back().id = events_->record(id);
  } catch (...) {
    stream.pending.pop_back();
    throw;
  }
  ++stream.recorded;
  stream.is_asked = false;
}

void StreamProgress::complete(Stream& stream, const Event& event) noexcept {
  events_->give_back(event.id);
  stream.completed = std::max(stream.completed, event.number);
}

std::map<StreamId, StreamProgress::Events> StreamProgress::take_pending() {
  const std::lock_guard lock(mutex_);
  record_asked();
  std::map<StreamId, Events> taken;
  for (const auto& [id, stream] : streams_)
    taken[id];
  for (auto& [id, stream] : streams_)
    taken[id].swap(stream.pending);
  return taken;
}

// The events of one stream complete in order, so it is enough to wait for the last.
bool StreamProgress::wait_all() noexcept {
  if (events_ == nullptr) return false;
  const GateEntry entry(gate_);
  if (!entry) return false;
  bool succeeded = true;
  try {
    for (const auto& [id, events] : take_pending()) {
      if (events.empty()) continue;
      bool done = true;
      try {
        events_->wait(events.back().id);
      } catch (const std::exception& error) {
        log_failure("wait", error);
        succeeded = done = false;
      }
      const std::lock_guard lock(mutex_);
      Stream& stream = streams_.at(id);
      for (const Event& event : events)
        done ? complete(stream, event) : events_->give_back(event.id);
      if (!done) stream.is_asked = true;  // a later event covers their points
    }
  } catch (const std::exception& error) {
    log_failure("wait", error);
    succeeded = false;
  }
  return succeeded;
}

void StreamProgress::retire(StreamId id, Work work) noexcept {
  const GateEntry entry(gate_);
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  Stream& stream = found->second;
  if (stream.is_asked && work == Work::kMayBePending && entry && events_ != nullptr) {
    try {
      return record(id, stream);
    } catch (const std::exception& error) {
      log_failure("retire", error);
    }
  }
  // The number that these points have is not used again: they stay open until a later stream with
  // the same id records an event.
  if (stream.is_asked) ++stream.recorded;
  stream.is_asked = false;
  if (work == Work::kHasEnded) stream.completed = stream.recorded;
}

std::size_t StreamProgress::pending_events() const {
  const std::lock_guard lock(mutex_);
  std::size_t events = 0;
  for (const auto& [id, stream] : streams_)
    events += stream.pending.size() + (stream.is_asked ? 1 : 0);
  return events;
}

}  // namespace cgtree
