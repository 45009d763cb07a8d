// ContextStream: the stream where a context works, and the streams that still use its memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "base/mutex.h"
#include "interop/device/stream_identity.h"
#include "interop/tensor/storage.h"

namespace cgtree {

// A context works on one stream at a time: that of the latest call. A call on another stream moves
// the context there: the new stream waits for the former one. All work of a context is therefore in
// one order, together with work that callers launch on their own streams between their calls.
//
// Other streams that use the memory of the context are readers: add_reader() records an event on
// them. Once a storage is released, the context waits for its readers before it writes to its
// memory again.
//
//   y = f(x)                on stream A
//   copy(host, y, B)        B is a reader of y: an event is recorded on B
//   y = Tensor()            the event is due
//   f(x)                    on stream C: C waits for A, and for the event
//
// Thread safety: any thread may call get(), add_reader(), release_readers(), try_wait_for_due(),
// order_before(), order_readers_before(), note_neighbour() and record_end(); the rest belongs to
// the caller of the context.
class ContextStream {
 public:
  // `home`: the stream for calls whose caller has none. `is_shared`: `home` is the user's. `moved`:
  // called with the new stream after each move; must not throw.
  ContextStream(StreamRef home, bool is_shared, std::function<void(StreamIdentity)> moved = nullptr)
      : home_(home),
        home_identity_(identity_of(home)),
        home_partition_(home.partition()),
        is_shared_(is_shared),
        moved_(std::move(moved)),
        now_(home.handle()),
        watch_([this](StreamRef stream, StreamIdentity) { leave(stream); }) {}

  StreamRef home() const noexcept { return home_; }
  bool is_home_shared() const noexcept { return is_shared_; }
  // Returns whether the context works on its home stream now.
  bool is_home() const noexcept { return handle() == home_.handle(); }
  StreamHandle handle() const noexcept { return now_.load(std::memory_order_relaxed); }
  // Returns the stream where the context works; its earlier work is before the end of this stream.
  StreamRef get() const noexcept {
    return home_ ? StreamRef(home_.api(), home_.device(), handle()) : StreamRef();
  }
  // Returns false if the context can only be ordered with the stream: a stream of another device,
  // or one that differs by thread.
  bool can_move_to(StreamRef stream) const noexcept {
    return stream.device() == home_.device() && !stream.is_per_thread();
  }
  // The partition of the device's processors (DeviceAPI::stream_partition()) for which recordings
  // are made: that of the home stream.
  std::uint64_t home_partition() const noexcept { return home_partition_; }
  // Returns whether the context works on a stream of another partition than home's, where a replay
  // would run on other processors.
  bool is_apart() const noexcept { return is_apart_.load(std::memory_order_relaxed); }
  // Returns whether a move to the stream would; null stands for home. Throws DeviceError.
  bool would_be_apart(StreamRef stream) const;
  // Requires: can_move_to(stream). Throws CaptureError, DeviceError; nothing has changed then.
  void move_to(StreamRef stream);

  // Makes work enqueued on `consumer` from now on wait for the context's work so far. Throws
  // CaptureError while one of the two streams captures, DeviceError.
  void order_before(StreamRef consumer) const;

  // Notes that work enqueued on `reader` so far uses `storage`. Throws DeviceError.
  void add_reader(const Storage& storage, StreamRef reader);
  // Must be called when the life of the storage ends, before its memory can be used again.
  void release_readers(const Storage& storage) noexcept {
    if (has_readers()) [[unlikely]] {
      make_due(storage);
    }
  }
  std::size_t readers() const noexcept {
    return readers_count_.load(std::memory_order_relaxed) & ~kNeighbour;
  }
  // Returns whether there are readers or neighbours, so that calls must look for work to wait for.
  bool has_readers() const noexcept { return readers_count_.load(std::memory_order_relaxed) != 0; }
  // Makes has_readers() true: another context uses the same plain memory. Any thread.
  void note_neighbour() noexcept { readers_count_.fetch_or(kNeighbour, std::memory_order_release); }
  // Records the end of the context's work so far. Requires: the stream does not capture. Throws
  // DeviceError.
  void record_end(Event& event) const {
    const std::lock_guard lock(mutex_);
    event.record(get());
  }
  bool has_due() const noexcept { return due_count_.load(std::memory_order_relaxed) != 0; }
  // Makes the context's stream, and `beside`, a stream that a step has forked, wait for the readers
  // of released storages. Throws DeviceError.
  void wait_for_due(StreamRef beside = {}) {
    if (has_due()) [[unlikely]] {
      wait_now(beside);
    }
  }
  // As wait_for_due(), but blocks the host, also while the thread captures. Throws DeviceError.
  void synchronize_due();
  // As wait_for_due(), unless the stream captures or the device fails; the readers then stay due.
  void try_wait_for_due() noexcept;
  // Makes the context's stream wait for the readers of a storage that is about to be written.
  // Forgets these readers.
  void wait_for_readers(const Storage& storage);
  // Makes `writer`, the stream of another context, wait for the readers.
  void order_readers_before(const Storage& storage, StreamRef writer) const;

  // Blocks the host until all work on the memory has ended, and forgets its readers. Returns false
  // if that is impossible. Requires: the context is no longer used.
  bool synchronize() noexcept;

 private:
  // Its event is recorded again only for the same stream, never for a later one with its handle.
  struct Reader {
    const Storage* storage;
    StreamIdentity stream;
    Event event;
  };

  void leave(StreamRef stream) noexcept;
  void synchronize_home() const noexcept;
  void move_locked(StreamRef stream);
  void make_due(const Storage& storage) noexcept;
  void wait_now(StreamRef beside);
  void forget_done_readers();
  void publish_readers() noexcept;

  // In readers_count_, besides the count.
  static constexpr std::size_t kNeighbour = ~(SIZE_MAX >> 1);

  const StreamRef home_;
  const StreamIdentity home_identity_;
  const std::uint64_t home_partition_;
  const bool is_shared_;
  const std::function<void(StreamIdentity)> moved_;
  std::atomic<StreamHandle> now_;      // written under mutex_
  std::atomic<bool> is_apart_{false};  // the same
  std::atomic<std::size_t> readers_count_{0};
  std::atomic<std::size_t> due_count_{0};
  mutable Mutex<LockRank::kContextStream> mutex_;  // guards all below
  std::vector<Reader> readers_;
  std::size_t next_look_ = 0;  // the next place in readers_ to look at
  std::vector<Event> due_;     // of released storages
  std::vector<Event> unused_;  // events to record again
  const StreamWatch watch_;    // destroyed first
};

}  // namespace cgtree
