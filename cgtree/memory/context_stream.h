// ContextStream: the stream where a context works, and which streams still use its memory.
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
// the context there, which makes the new stream wait for the former one. So all work of a context
// is in one order, and so is what callers launch on their own streams between their calls.
//
// Other streams that use the memory of the context are readers: note_use() records an event on
// them. Once the storage is released, the context waits for its readers before it writes into its
// memory again.
//
//   y = f(x)                on stream A
//   copy(host, y, B)        B is a reader of y: an event is recorded on B
//   y = Tensor()            the event is due
//   f(x)                    on stream C: C waits for A, and for the event
//
// Thread safety: get(), add_reader(), release_readers(), try_wait_for_due(), order_before(),
// order_readers_before(), note_neighbour() and record_end() may be called from any thread, the rest
// by the caller of the context.
class ContextStream {
 public:
  // `home`: where calls work whose caller has no stream. `is_shared`: `home` is the user's.
  // `moved`: called with the new stream after each move; must not throw.
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
  // Returns whether the context works on its home now.
  bool is_home() const noexcept { return handle() == home_.handle(); }
  StreamHandle handle() const noexcept { return now_.load(std::memory_order_relaxed); }
  // Returns where the context works now; what it has done so far is before the end of this stream.
  StreamRef get() const noexcept {
    return home_ ? StreamRef(home_.api(), home_.device(), handle()) : StreamRef();
  }
  // Returns false if the context can only be ordered with the stream: it is another device's, or
  // not the same on each thread.
  bool can_move_to(StreamRef stream) const noexcept {
    return stream.device() == home_.device() && !stream.is_per_thread();
  }
  // The partition of the device's processors (DeviceAPI::stream_partition()) that recordings are
  // made for: that of home.
  std::uint64_t home_partition() const noexcept { return home_partition_; }
  // Returns whether the context works on a stream of another partition than home's, so that a
  // recording would replay on other processors.
  bool is_apart() const noexcept { return is_apart_.load(std::memory_order_relaxed); }
  // Returns whether it would if it moved to the stream; null stands for home. Throws DeviceError.
  bool would_be_apart(StreamRef stream) const;
  // Requires: can_move_to(stream). Throws CaptureError, DeviceError; nothing has changed then.
  void move_to(StreamRef stream);

  // Makes work enqueued on `consumer` from now on wait for what the context has done so far.
  // Throws CaptureError while one of the two captures, DeviceError.
  void order_before(StreamRef consumer) const;

  // Notes that `storage` is used by what is enqueued on `reader` so far. Throws DeviceError.
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
  // Returns whether there are readers, or neighbours: calls must look whom they have to wait for.
  bool has_readers() const noexcept { return readers_count_.load(std::memory_order_relaxed) != 0; }
  // From now on has_readers(): another context uses the same plain memory. Any thread.
  void note_neighbour() noexcept { readers_count_.fetch_or(kNeighbour, std::memory_order_release); }
  // Records the end of what the context has done so far. Requires: the stream does not capture.
  // Throws DeviceError.
  void record_end(Event& event) const {
    const std::lock_guard lock(mutex_);
    event.record(get());
  }
  bool has_due() const noexcept { return due_count_.load(std::memory_order_relaxed) != 0; }
  // Makes the context's stream wait for the readers of released storages, and `beside` too, a
  // stream that a step has forked. Throws DeviceError.
  void wait_for_due(StreamRef beside = {}) {
    if (has_due()) [[unlikely]] {
      wait_now(beside);
    }
  }
  // Blocks the host until they are done instead, also while the thread captures. Throws
  // DeviceError.
  void synchronize_due();
  // As wait_for_due(), unless the stream captures or the device fails; then they stay due.
  void try_wait_for_due() noexcept;
  // Makes the context's stream wait for the readers of a storage that is about to be written. They
  // are its readers no longer.
  void wait_for_readers(const Storage& storage);
  // Makes `writer`, the stream of another context, wait for them.
  void order_readers_before(const Storage& storage, StreamRef writer) const;

  // Blocks the host until all work on the memory has ended, and forgets its readers. Returns false
  // if that is impossible. Requires: the context is not used any more.
  bool synchronize() noexcept;

 private:
  // Its event is recorded again for the same stream only, never for a later one with the handle.
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

  // In readers_count_, beside the count.
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
  std::size_t next_look_ = 0;  // the place in readers_ that is looked at next
  std::vector<Event> due_;     // of released storages
  std::vector<Event> unused_;  // events to record again
  const StreamWatch watch_;    // ends first
};

}  // namespace cgtree
