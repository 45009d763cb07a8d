// Gate and Entry: admit one thread at a time to a context, and order it with the streams outside.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "cgtree/memory/context_stream.h"
#include "cgtree/memory/plain_memory.h"
#include "cgtree/record/input_run.h"
#include "cgtree/values/input_list.h"
#include "interop/device/stream.h"
#include "interop/tensor/stream_synchronization.h"

namespace cgtree {

// A Gate admits one thread at a time to a context: a caller, or upkeep that another thread
// requests. A second caller is refused. A caller that meets upkeep waits, because upkeep is short
// and not a mistake of the caller's.
// Thread safety: every function may be called from any thread.
class Gate {
 public:
  // Objects that upkeep removed from the context. They are destroyed outside, because their
  // destructors may be foreign code that calls the context.
  using Leftovers = std::unique_ptr<void, void (*)(void*)>;
  // `stream`: the context's stream; must outlive the gate. `domain`: of its memory. `upkeep`: run
  // by request_upkeep(); must not throw.
  Gate(ContextStream& stream, const StorageDomain& domain, std::function<Leftovers()> upkeep)
      : stream_(stream), domain_(&domain), upkeep_(std::move(upkeep)) {}

  // Returns false if another thread is inside, or if upkeep on this thread called back.
  bool enter() noexcept { return !inside_.exchange(true, kAcquire) || enter_after_upkeep(); }
  void leave() noexcept { inside_.store(false, std::memory_order_release); }

  // Returns false if another thread is inside.
  bool enter_for_upkeep() noexcept;
  void leave_upkeep() noexcept;
  // Runs the upkeep now or, if a thread is inside, before the next entry or inspection begins.
  void request_upkeep() noexcept;
  // As request_upkeep(), but always leaves it to the next entry: neither waits nor calls back.
  void note_upkeep() noexcept { wants_upkeep_.store(true, std::memory_order_release); }

  // Returns the stream on which a call of this thread would work, if other code captures it, or
  // null.
  StreamRef foreign_capture() const { return foreign_capture(current_stream_or_none()); }

  // The context of the gate, for keep_context().
  void set_context(std::weak_ptr<const void> context) noexcept { context_ = std::move(context); }
  // Keeps the context until the entry in progress has left, because the caller's code that it runs
  // may destroy the caller's last handle. Requires: an entry of this thread is inside.
  void keep_context() { rest().context = context_.lock(); }
  // Makes the entry in progress call user.end() when its work is enqueued. Requires: as above.
  void note_shared_use(PlainMemoryUser& user) { rest().shared = &user; }
  // Destroys code of the caller's, which may call the context, after the thread that is inside has
  // left. If host memory is short, destroys it at once.
  void leave_behind(std::shared_ptr<const void> code) noexcept;

 private:
  friend class Inspection;
  friend class Entry;
  using LeftBehind = std::vector<std::shared_ptr<const void>>;
  // The producers and users of memory that the work of an entry is ordered with.
  struct Outside {
    StreamSynchronization libraries;
    std::vector<StorageRef> of_contexts;  // inputs that are memory of other contexts
    StreamRef guest;  // the caller's stream, if the context cannot move there; else null
    // Producers in the capture that the work joins.
    std::optional<StreamSynchronization> captured;

    // Makes the stream wait for the work of other contexts on their memory.
    void order_contexts_before(StreamRef stream) const;
  };
  // The actions that remain when a thread leaves.
  struct Rest {
    std::optional<Outside> outside;
    PlainMemoryUser* shared = nullptr;    // ends its use when the thread leaves
    std::shared_ptr<const void> context;  // destroyed last
    LeftBehind left_behind;
  };

  static constexpr std::memory_order kAcquire = std::memory_order_acquire;

  bool enter_after_upkeep() noexcept;
  // Does the requested upkeep, on the thread of the caller who has entered. Leftovers are destroyed
  // outside; returns false if another caller entered meanwhile.
  bool do_upkeep_inside() noexcept;
  StreamRef foreign_capture(StreamRef caller) const;
  Rest& rest() { return rest_ ? *rest_ : rest_.emplace(Rest{}); }
  LeftBehind take_left_behind() noexcept;

  ContextStream& stream_;
  const StorageDomain* const domain_;
  const std::function<Leftovers()> upkeep_;
  std::weak_ptr<const void> context_;
  std::uint64_t scope_ = 0;   // the last stream scope of the last call's thread; for the thread
                              // inside
  std::optional<Rest> rest_;  // of the entry in progress; for the thread inside
  std::atomic<bool> inside_{false};
  std::atomic<bool> wants_upkeep_{false};
  Mutex<LockRank::kUpkeep> upkeep_mutex_;    // held while upkeep is inside
  std::atomic<std::thread::id> upkeeper_{};  // the thread that holds it
};

// An Inspection admits a monitor to a context: it waits for the call in progress, and a caller that
// meets it waits as for upkeep.
class Inspection {
 public:
  // Throws ConcurrentUse if a call stays inside for ten seconds: the thread may be waiting for
  // itself, for example in a log sink that a call uses.
  explicit Inspection(Gate& gate);
  ~Inspection() { gate_.leave_upkeep(); }
  Inspection(const Inspection&) = delete;
  Inspection& operator=(const Inspection&) = delete;

 private:
  Gate& gate_;
};

// An Entry is one stay of a thread inside a context. It moves the context to the caller's stream,
// and orders it with the streams of the inputs' producers: after them when it begins, and before
// them when it ends, even by an exception.
//
//   Entry entry(gate);              // throws ConcurrentUse
//   if (entry.ask_foreign_capture()) ...
//   entry.begin();                  // moves to the caller's stream
//   entry.wait_for_producers(in);   // waits for the libraries and contexts that made inputs
//   ... work on the context's stream ...
//   entry.finish();                 // the producers wait for that work
//
// If the work throws before finish(), the destructor does the same, and logs any failure. None of
// this is part of a recording: a capture must not wait for a stream outside of it.
class Entry {
 public:
  // Throws ConcurrentUse if another thread is inside, or if a step function calls back. Inlined by
  // attribute, as is everything that each call does: compilers stop inlining when a file grows.
  [[gnu::always_inline]] explicit Entry(Gate& gate)
      : gate_(gate), given_(current_stream_or_none()) {
    if (!gate_.enter()) [[unlikely]] {
      refuse();
    }
    // Checked inside: an inspection may have delayed upkeep until now.
    if (gate_.wants_upkeep_.load(std::memory_order_acquire)) [[unlikely]] {
      if (!gate_.do_upkeep_inside()) refuse();
    }
  }
  [[gnu::always_inline]] ~Entry() {
    if (gate_.rest_) [[unlikely]] {
      leave_with_rest();
    } else {
      gate_.leave();
    }
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  // Returns false, so that no call is predicted, if other code is capturing the stream on which a
  // call would work, or if that stream belongs to another partition than the recordings. A caller
  // that stays in one StreamScope is not checked again: if its stream captures by now, the launch
  // is refused.
  bool may_predict() const {
    if (given_ ? given_ == gate_.stream_.get() && last_stream_scope() == gate_.scope_
               : !gate_.stream_.is_home_shared()) [[likely]] {
      return true;
    }
    return !ask_foreign_capture() && !gate_.stream_.would_be_apart(given_);
  }
  // Returns the stream on which a call would work, if other code is capturing it, else null. Must
  // be called before any work other than a replay.
  StreamRef ask_foreign_capture() const { return gate_.foreign_capture(given_); }

  // Moves the context to the caller's stream. Throws CaptureError, DeviceError.
  void begin() {
    begin_predicted();
    if (gate_.stream_.is_apart()) gate_.scope_ = kAskAgain;
  }
  // As begin(), after may_predict().
  [[gnu::always_inline]] void begin_predicted() {
    gate_.scope_ = last_stream_scope();
    const bool is_there = given_ ? given_ == gate_.stream_.get() : gate_.stream_.is_home();
    if (!is_there) [[unlikely]] {
      move_to(given_ ? given_ : gate_.stream_.home());
    }
  }
  // Returns whether the context cannot work on the caller's stream, so that the two streams wait
  // for each other. Requires: begin() has returned.
  bool has_guest() const noexcept {
    return gate_.rest_ && gate_.rest_->outside && gate_.rest_->outside->guest;
  }
  // Makes the context's stream wait for the producers of the inputs: the streams of libraries that
  // lent them, and other contexts. `known`: some of the inputs, with their producers; or null.
  // `captured`: a stream whose capture the work joins, or null; it waits for producers in that
  // capture, and the context's stream does not. Returns whether any inputs belong to libraries or
  // other contexts. Throws as begin() does.
  bool wait_for_producers(const InputList& inputs, const InputRun* known = nullptr,
                          StreamRef captured = {});
  // Makes `stream` wait for the producers of the inputs, which do not wait for it, except those in
  // the capture of `captured`: these are ordered as above.
  void order_producers_before(const InputList& inputs, StreamRef stream, StreamRef captured);
  // Makes the producers wait for the context's stream: libraries now, contexts before they next use
  // the memory. Throws as begin() does.
  void finish() {
    if (gate_.rest_) [[unlikely]] {
      finish_order();
    }
  }

 private:
  // Differs from the number of every open scope.
  static constexpr std::uint64_t kAskAgain = 0;

  [[noreturn]] static void refuse();
  void move_to(StreamRef caller);
  // Adds the producers of the inputs. Returns whether there are any.
  bool find_producers(const InputList& inputs, const InputRun* known, StreamRef captured,
                      Gate::Outside& outside) const;
  void finish_order();
  void leave_with_rest() noexcept;

  Gate& gate_;
  const StreamRef given_;  // the calling thread's stream; may be null
};

}  // namespace cgtree
