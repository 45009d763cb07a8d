// ContextProgress: the replays of one context that have not ended, and the progress of each.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cgtree/tree/tree.h"
#include "cgtree/values/options.h"
#include "extensions/progress/marked_recording.h"
#include "extensions/progress/progress_watch.h"
#include "extensions/progress/replay_timer.h"
#include "interop/device/code.h"

namespace cgtree {

// Returns whether the device does no more work for this process: a kernel failed while it ran.
inline bool is_sticky(Code code) noexcept {
  const int number = static_cast<int>(code);
  return number == 700 || number == 702 || number == 710 || (number >= 714 && number <= 719);
}

// A ContextProgress enqueues a memset of eight bytes before and after each replay, by which the
// host sees that it has begun and ended. Replays that must leave marks use the executable graphs of
// a MarkedRecording.
//
// Thread safety: used by the thread that is inside the context, except functions marked "any
// thread". The device is never called with the lock held, nor by functions for any thread.
class ContextProgress {
 public:
  // Throws InvalidArgument for a device without graphs or marks; OutOfMemory. `memory`, `spent` and
  // `timer`: borrowed, until end().
  ContextProgress(const ContextOptions& options, ContextMemory& memory, Spent& spent,
                  ReplayTimer& timer, const ProgressOptions& progress);
  ~ContextProgress() { end(); }
  ContextProgress(const ContextProgress&) = delete;
  ContextProgress& operator=(const ContextProgress&) = delete;

  // The next four are called for one replay, in this order. If the launch fails, abandon() is the
  // last.
  void open(Node& node) noexcept;
  void begin_launch() noexcept;
  void restore() noexcept;  // the recording has its own executable graphs again
  void close() noexcept;

  // Ends the last replay if it was opened and not closed: its launch failed.
  void abandon() noexcept;
  // Must be called after a recording was made. Drops graphs with marks until all graphs are within
  // the limit on their memory, so that decisions to record do not depend on watching.
  void keep_within_graph_bytes() noexcept;
  // Must be called before a recording is dropped.
  void forget(const Node& node) noexcept {
    if (exchanged_ == &node.recording) restore();
  }
  // Ends watching: graphs with marks are dropped, and report() is empty from then on.
  void end() noexcept;

  // The next three are for any thread.
  ContextProgressReport report() const;
  // Returns true once for the first replay that has not ended, when it has been the first for
  // longer than the limit. Then the next replay leaves marks.
  bool exceeds(std::chrono::milliseconds limit) noexcept;
  int rank() const noexcept { return about_.rank; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kSlots = 64;  // replays that may be in flight
  static constexpr std::chrono::milliseconds kTriesAgainAfter{100};
  struct Launch {
    std::string function;
    std::uint32_t node = 0;
    std::uint64_t number = 0;
    Clock::time_point time;
    std::uint64_t sequence = 0;  // counts the replays of the context

    std::size_t begin_word() const noexcept { return 2 * (sequence % kSlots); }
    std::size_t end_word() const noexcept { return begin_word() + 1; }
    std::shared_ptr<const Marks> marks;
    std::string why_unmarked;
    bool are_times_read = false;                   // used by the thread that is inside
    bool is_closed = false;                        // its end will be written
    std::optional<Clock::time_point> first_since;  // when it became the first that has not ended
    bool was_told = false;                         // its excess of the limit was reported
  };
  using Launches = std::list<Launch>;

  bool has_ended(const Launch& launch) const noexcept {
    return read_word(flags_, launch.end_word()) != 0;
  }
  bool fits(std::size_t more_bytes) const noexcept {
    return spent_.graph_bytes + spent_.marked_graph_bytes + more_bytes <= max_graph_bytes_;
  }
  // Returns its graphs with marks, made if necessary; or null, and the reason.
  MarkedRecording* marked_of(Recording& recording, std::string* why);
  // Passes the times of ended replays to the timer. Must be called before a launch with the same
  // marks.
  void read_times();
  // Drops ended replays, except the last of them.
  void drop_ended() noexcept;
  void write_flag(std::size_t word);
  void give_up(std::string_view what) noexcept;

  ContextMemory& memory_;
  Spent& spent_;
  const std::size_t max_graph_bytes_;
  const ContextProgressReport about_;  // without replays
  ReplayTimer& timer_;
  const std::size_t every_;
  const bool times_scopes_;
  bool is_open_ = false;            // a noted replay is in progress
  bool has_failed_ = false;         // nothing is noted any more
  Recording* exchanged_ = nullptr;  // has the graphs of `exchanged_for_`
  MarkedRecording* exchanged_for_ = nullptr;
  std::vector<std::weak_ptr<MarkedRecording>> made_;  // those that may have graphs
  Clock::time_point tries_again_ = {};                // of making graphs: memory was short before
  std::uint64_t launched_ = 0;
  std::atomic<bool> marks_next_{false};

  mutable Mutex<LockRank::kWatch> mutex_;  // guards all below
  Tensor flags_;                           // two words for each slot; null after end()
  Launches launches_;                      // the last that has ended, and those after it
  std::uint64_t unwatched_ = 0;
};

}  // namespace cgtree
