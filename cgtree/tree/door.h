// Door and Visit: who is inside a context, and how the streams outside are ordered with it.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "cgtree/input_list.h"
#include "interop/device/stream.h"
#include "interop/exchange/stream_synchronization.h"

namespace cgtree {

// A Door lets one thread at a time into a context: a caller, or upkeep that another thread asks
// for. A second caller is refused; a caller that meets upkeep waits, because upkeep is short and no
// mistake of the caller's.
// Thread safety: every function may be called from any thread.
class Door {
 public:
  // `stream`: the context's, where calls launch their work. `given`: the same if the user provided
  // it, else null. `upkeep`: what request_upkeep() runs; must not throw.
  Door(StreamRef stream, StreamRef given, std::function<void()> upkeep)
      : stream_(stream), given_(given), upkeep_(std::move(upkeep)) {}

  // Returns false if another thread is inside, or if upkeep on this thread has called back.
  bool enter() noexcept { return !inside_.exchange(true, kAcquire) || enter_after_upkeep(); }
  void leave() noexcept { inside_.store(false, std::memory_order_release); }

  // Returns false if another thread is inside.
  bool enter_for_upkeep() noexcept;
  void leave_upkeep() noexcept;
  // Runs the upkeep now, or at the next visit if a thread is inside.
  void request_upkeep() noexcept;

  // Returns the stream on which a call on this thread would do its work, if other code is capturing
  // it, else null.
  StreamRef foreign_capture() const { return foreign_capture(current_stream_or_none()); }

 private:
  friend class Visit;
  static constexpr std::memory_order kAcquire = std::memory_order_acquire;

  bool enter_after_upkeep() noexcept;
  void do_upkeep() noexcept;
  StreamRef foreign_capture(StreamRef caller) const {
    const StreamRef outside = caller ? caller : given_;
    return outside && outside.is_capturing() ? outside : StreamRef();
  }

  const StreamRef stream_;
  const StreamRef given_;
  const std::function<void()> upkeep_;
  std::atomic<bool> inside_{false};
  std::atomic<bool> wants_upkeep_{false};
  std::mutex upkeep_mutex_;                  // held while upkeep is inside
  std::atomic<std::thread::id> upkeeper_{};  // the thread that holds it
};

// An Inspection is a stay of a monitor inside a context: it waits for the call in progress, and a
// caller that meets it waits as for upkeep.
class Inspection {
 public:
  // Throws ConcurrentUse if a call stays inside for ten seconds: the thread may be waiting for
  // itself, as a log sink that is called by a call would.
  explicit Inspection(Door& door);
  ~Inspection() { door_.leave_upkeep(); }
  Inspection(const Inspection&) = delete;
  Inspection& operator=(const Inspection&) = delete;

 private:
  Door& door_;
};

// A Visit is one stay of a thread inside a context. It orders the context's stream with the streams
// outside: behind them when it begins, and before them when it ends, however it ends.
//
//   Visit visit(door);              // throws ConcurrentUse
//   if (visit.foreign_capture()) ...
//   visit.begin();                  // waits for the caller's stream
//   visit.wait_for_producers(in);   // waits for the libraries that borrowed inputs came from
//   ... work on the context's stream ...
//   visit.finish();                 // the caller and the producers wait for that work
//
// If finish() is not reached, because the work has thrown, the destructor does the same; what it
// cannot do then it logs. None of this is part of a recording: a capture must not wait for a stream
// outside of it.
class Visit {
 public:
  // Throws ConcurrentUse if another thread is inside, or if a step function calls back.
  explicit Visit(Door& door) : door_(door), caller_(current_stream_or_none()) {
    if (!door_.enter()) [[unlikely]] {
      refuse();
    }
    if (door_.wants_upkeep_.load(std::memory_order_acquire)) [[unlikely]] {
      door_.do_upkeep();
    }
  }
  ~Visit() {
    if (must_finish_) [[unlikely]] {
      finish_after_failure();
    }
    door_.leave();
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  // Returns the stream on which a call would do its work, if other code is capturing it, else null.
  StreamRef foreign_capture() const { return door_.foreign_capture(caller_); }

  // Work on the context's stream from now on waits for what the caller's stream holds so far.
  // Throws CaptureError, DeviceError.
  void begin() {
    if (!caller_ || caller_ == door_.stream_) return;
    door_.stream_.wait_for(caller_);
    must_finish_ = follows_caller_ = true;
  }
  // The same for the streams of the libraries that borrowed inputs came from.
  void wait_for_producers(InputList inputs);
  // Work on the caller's and the producers' streams from now on waits for the context's stream.
  // Throws as begin() does.
  void finish() {
    if (must_finish_) [[unlikely]] {
      finish_order();
    }
  }

 private:
  [[noreturn]] static void refuse();
  void finish_order();
  void finish_after_failure() noexcept;

  Door& door_;
  const StreamRef caller_;  // the calling thread's stream; may be null
  bool must_finish_ = false;
  bool follows_caller_ = false;
  std::optional<StreamSynchronization> producers_;
};

}  // namespace cgtree
