// Moves a context between streams, and makes it wait for other users of its memory.
#include "cgtree/memory/context_stream.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log_event.h"
#include "interop/device/device_api.h"
#include "interop/tensor/stream_synchronization.h"

namespace cgtree {
namespace {

bool is_done(const Event& event) noexcept {
  try {
    return event.is_reached();
  } catch (const std::exception&) {
    return false;  // a thread that waits for it gets the error
  }
}

}  // namespace

void ContextStream::move_to(StreamRef stream) {
  const std::lock_guard lock(mutex_);
  move_locked(stream);
}

bool ContextStream::would_be_apart(StreamRef stream) const {
  if (!stream || stream == home_ || !can_move_to(stream)) return false;
  return stream == get() ? is_apart() : stream.partition() != home_partition_;
}

void ContextStream::move_locked(StreamRef stream) {
  const bool is_apart = would_be_apart(stream);
  const StreamIdentity identity = stream == home_ ? home_identity_ : identity_of(stream);
  (void)order_import(get(), stream, SyncPolicy::kEventWait);
  now_.store(stream.handle(), std::memory_order_relaxed);
  is_apart_.store(is_apart, std::memory_order_relaxed);
  if (moved_) moved_(identity);
}

void ContextStream::order_before(StreamRef consumer) const {
  const std::lock_guard lock(mutex_);
  (void)order_import(get(), consumer, SyncPolicy::kEventWait);
}

// Requires: the mutex is held. Another thread may note a neighbour meanwhile.
void ContextStream::publish_readers() noexcept {
  std::size_t was = readers_count_.load(std::memory_order_relaxed);
  while (!readers_count_.compare_exchange_weak(was, readers_.size() | (was & kNeighbour),
                                               std::memory_order_release)) {
  }
}

void ContextStream::add_reader(const Storage& storage, StreamRef reader) {
  if (reader == get()) return;
  if (reader.device().type != home_.device().type) return reader.synchronize();
  const StreamIdentity identity = identity_of(reader);
  // A reader may know only the handle, and not the device.
  if (const StreamRef named = find_stream(identity)) reader = named;
  const std::lock_guard lock(mutex_);
  const auto known = std::find_if(readers_.begin(), readers_.end(), [&](const Reader& other) {
    return other.storage == &storage && other.stream == identity;
  });
  if (known != readers_.end()) return known->event.record(reader);
  forget_done_readers();
  Event event;
  if (!unused_.empty()) {
    event = std::move(unused_.back());
    unused_.pop_back();
  }
  event.record(reader);
  // Room for each event in every list that it may enter, so that a release does not allocate.
  const std::size_t all = readers_.size() + due_.size() + unused_.size() + 1;
  readers_.reserve(all);
  due_.reserve(all);
  unused_.reserve(all);
  readers_.push_back({&storage, identity, std::move(event)});
  publish_readers();
}

// Long-lived storages may have been read on many streams that have ended since. For each added
// reader two others are examined, in turn, so that few finished ones stay. Requires: the mutex is
// held, and all three lists have room for each event.
void ContextStream::forget_done_readers() {
  const RelaxedCapture relaxed(home_.api().graphs());
  for (int looks = 0; looks < 2 && !readers_.empty(); ++looks) {
    next_look_ %= readers_.size();
    Reader& reader = readers_[next_look_];
    if (!is_done(reader.event)) {
      ++next_look_;
      continue;
    }
    unused_.push_back(std::move(reader.event));
    reader = std::move(readers_.back());
    readers_.pop_back();
  }
}

void ContextStream::make_due(const Storage& storage) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(readers_, [&](Reader& reader) {
    if (reader.storage != &storage) return false;
    due_.push_back(std::move(reader.event));
    return true;
  });
  due_count_.store(due_.size(), std::memory_order_release);
  publish_readers();
}

void ContextStream::wait_now(StreamRef beside) {
  const std::lock_guard lock(mutex_);
  while (!due_.empty()) {
    due_.back().make_wait(get());
    if (beside && beside != get()) due_.back().make_wait(beside);
    unused_.push_back(std::move(due_.back()));
    due_.pop_back();
    due_count_.store(due_.size(), std::memory_order_release);
  }
}

// Waits without the mutex: the awaited work may be a host function that releases a storage.
void ContextStream::synchronize_due() {
  if (!has_due()) return;
  const RelaxedCapture relaxed(home_.api().graphs());
  std::unique_lock lock(mutex_);
  while (!due_.empty()) {
    Event event = std::move(due_.back());
    due_.pop_back();
    lock.unlock();
    try {
      event.synchronize();
    } catch (...) {
      lock.lock();
      due_.push_back(std::move(event));
      throw;
    }
    lock.lock();
    unused_.push_back(std::move(event));
    due_count_.store(due_.size(), std::memory_order_release);
  }
}

void ContextStream::try_wait_for_due() noexcept {
  if (!has_due()) return;
  try {
    if (!get().is_capturing()) wait_now({});
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "stream_not_ordered what=\"{}\"", error.what());
  }
}

void ContextStream::wait_for_readers(const Storage& storage) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = readers_.size(); i-- > 0;) {
    if (readers_[i].storage != &storage) continue;
    readers_[i].event.make_wait(get());
    unused_.push_back(std::move(readers_[i].event));
    readers_[i] = std::move(readers_.back());
    readers_.pop_back();
    publish_readers();
  }
}

void ContextStream::order_readers_before(const Storage& storage, StreamRef writer) const {
  if (!has_readers()) return;
  const std::lock_guard lock(mutex_);
  for (const Reader& reader : readers_) {
    if (reader.storage == &storage) reader.event.make_wait(writer);
  }
}

// Waits without the mutex, and for an event, as the stream may end meanwhile: the work may need
// another thread, which must first make or destroy a stream. The thread may capture for another
// context.
bool ContextStream::synchronize() noexcept {
  const RelaxedCapture relaxed(home_.api().graphs());
  try {
    Event last;
    std::vector<Reader> readers;
    std::vector<Event> due;
    {
      const std::lock_guard lock(mutex_);
      if (get().is_capturing()) return false;  // waiting would invalidate the capture
      last.record(get());
      readers.swap(readers_);
      due.swap(due_);
    }
    last.synchronize();
    for (const Reader& reader : readers)
      reader.event.synchronize();
    for (const Event& event : due)
      event.synchronize();
    return true;
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "context_end error=\"{}\"", error.what());
    return false;
  }
}

// A stream that is about to be destroyed must not be used again.
void ContextStream::leave(StreamRef stream) noexcept {
  if (!home_ || stream.device() != home_.device()) return;
  if (stream == home_) return synchronize_home();
  if (stream != get()) return;  // without the mutex, which an enqueuing thread holds
  const std::lock_guard lock(mutex_);
  if (stream != get()) return;
  try {
    move_locked(home_);
  } catch (const std::exception& error) {
    now_.store(home_.handle(), std::memory_order_relaxed);
    is_apart_.store(false, std::memory_order_relaxed);
    if (moved_) moved_(home_identity_);
    log_event(LogLevel::kError, "stream_not_ordered what=\"{}\"", error.what());
  }
}

// Without the mutex, as in synchronize_due().
void ContextStream::synchronize_home() const noexcept {
  const RelaxedCapture relaxed(home_.api().graphs());
  try {
    if (get() == home_) home_.synchronize();
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "stream_not_ordered what=\"{}\"", error.what());
  }
}

}  // namespace cgtree
