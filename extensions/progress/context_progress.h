// ContextProgress: the replays of one context that have not ended, and how far each has come.
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

// Returns whether the device does no more work for this process: a kernel has failed while it ran.
inline bool is_sticky(Code code) noexcept {
  const int number = static_cast<int>(code);
  return number == 700 || number == 702 || number == 710 || (number >= 714 && number <= 719);
}

// A ContextProgress enqueues a memset of eight bytes in front of and behind each replay, by which
// the host sees that it has begun and ended, and lets those that are to leave marks use the
// executable graphs of a MarkedRecording.
//
// Thread safety: used by the thread that is inside the context, but for what is said of any thread.
// No call of the device is made with the lock held, nor by what any thread may call.
class ContextProgress {
 public:
  // Throws InvalidArgument for a device that has no graphs, or none with marks; OutOfMemory.
  // `memory`, `spent` and `timer`: borrowed, until end().
  ContextProgress(const ContextOptions& options, ContextMemory& memory, Spent& spent,
                  ReplayTimer& timer, const ProgressOptions& progress);
  ~ContextProgress() { end(); }
  ContextProgress(const ContextProgress&) = delete;
  ContextProgress& operator=(const ContextProgress&) = delete;

  // The next four are of one replay, in this order. Where the launch fails, abandon() takes the
  // place of the last.
  void open(Node& node) noexcept;
  void begin_launch() noexcept;
  void restore() noexcept;  // the recording has its own executable graphs again
  void close() noexcept;

  // Does nothing but if the last replay was opened and not closed: its launch has failed.
  void abandon() noexcept;
  // A recording was made. Graphs with marks are dropped until all graphs take no more memory than
  // they may, so that what is recorded does not depend on what is watched.
  void keep_within_graph_bytes() noexcept;
  // Must be called before a recording goes.
  void forget(const Node& node) noexcept {
    if (exchanged_ == &node.recording) restore();
  }
  // Nothing is watched from then on, and report() is of nothing: graphs with marks are dropped.
  void end() noexcept;

  // The next three are for any thread.
  ContextProgressReport report() const;
  // Returns whether the first replay that has not ended was found to be the first longer ago than
  // the limit, and that is the first time it is said of this one. Then the next replay leaves
  // marks.
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
    std::uint64_t sequence = 0;  // counts those of the context

    std::size_t begin_word() const noexcept { return 2 * (sequence % kSlots); }
    std::size_t end_word() const noexcept { return begin_word() + 1; }
    std::shared_ptr<const Marks> marks;
    std::string why_unmarked;
    bool are_times_read = false;                   // used by the thread that is inside
    bool is_closed = false;                        // its end will be written
    std::optional<Clock::time_point> first_since;  // when it was found that no other is in front
    bool was_told = false;                         // that it has exceeded the limit
  };
  using Launches = std::list<Launch>;

  bool has_ended(const Launch& launch) const noexcept {
    return read_word(flags_, launch.end_word()) != 0;
  }
  bool fits(std::size_t more_bytes) const noexcept {
    return spent_.graph_bytes + spent_.marked_graph_bytes + more_bytes <= max_graph_bytes_;
  }
  // Returns its graphs with marks, which are made if there are none; or null, and why.
  MarkedRecording* marked_of(Recording& recording, std::string* why);
  // Tells the timer of those that have ended. Must be called before a launch with the same marks.
  void read_times();
  // Drops those that have ended, except the last of them.
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
  bool is_open_ = false;            // a replay that is noted is in progress
  bool has_failed_ = false;         // nothing is noted any more
  Recording* exchanged_ = nullptr;  // has the graphs of `exchanged_for_`
  MarkedRecording* exchanged_for_ = nullptr;
  std::vector<std::weak_ptr<MarkedRecording>> made_;  // those that may have graphs
  Clock::time_point tries_again_ = {};                // to make graphs: memory was short before
  std::uint64_t launched_ = 0;
  std::atomic<bool> marks_next_{false};

  mutable Mutex<LockRank::kWatch> mutex_;  // guards all below
  Tensor flags_;                           // two words for each slot; null after end()
  Launches launches_;                      // the last that has ended, and those behind it
  std::uint64_t unwatched_ = 0;
};

}  // namespace cgtree
