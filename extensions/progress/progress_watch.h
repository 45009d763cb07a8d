// ProgressWatch: says where the replays of contexts hang, by marks that they leave on their way.
//
//   auto watch = std::make_shared<cgtree::ProgressWatch>(cgtree::ProgressOptions{.time_limit =
//   10s}); watch_progress(context, watch);
//   ...                                   // a replay hangs; ten seconds later the log has:
//
//   context 'decode' on cuda:0
//     replay 812 of 'decode' (recording 3) has not ended
//       reached      mark 8 of 32, behind 'layer 3/mlp'
//       not reached  mark 9 of 32, behind 'layer 4/attention': kernels attention, scale
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cgtree {

class ContextProgress;  // extensions/progress/context_progress.h

// A mark of a replay lies behind nodes that were captured in the same scopes, or behind one
// collective.
struct ReplayMark {
  std::string scope;                 // the path of the scopes; "" outside of all
  std::vector<std::string> kernels;  // the first of those in front of it, behind the mark before
  bool is_collective = false;
  bool is_reached = false;
};

// The way of one replay on the device.
struct ReplayProgress {
  std::string function;
  std::uint32_t node = 0;            // the recording, as in snapshots and events
  std::uint64_t number = 0;          // among the replays of the recording, from 1
  std::chrono::milliseconds age{0};  // since it was launched
  bool has_begun = false;            // what was enqueued before has ended
  bool has_ended = false;
  std::vector<ReplayMark> marks;  // in an order in which they may be reached; none without marks
  std::string why_unmarked;       // why there are none
};

// The replays of one context that have not ended, in order, behind the last one that has.
struct ContextProgressReport {
  std::string context;
  std::string device;
  int rank = 0;
  int ranks = 1;
  std::vector<ReplayProgress> replays;
  std::uint64_t unwatched = 0;  // replays that were not noted, because too many had not ended
};

// Says for each context what it has reached, what not, and which kernels are there; and of ranks
// what each waits for. A pure function.
std::string to_string(std::span<const ContextProgressReport> contexts);

// The options of a ProgressWatch.
struct ProgressOptions {
  // Of each recording, every n-th replay leaves marks. A second executable graph is made for that;
  // where memory is too short, that is tried again 100 ms later.
  // 0: only the next replay after one has exceeded the time limit.
  std::size_t every_nth_replay = 1;
  // The time within which a replay is to end, from when those in front of it have ended; up to a
  // fourth more may go by. What exceeds it is reported once; 0: nothing is, and report() is there
  // to be called.
  std::chrono::milliseconds time_limit{30'000};
  // Replays that leave marks are timed by their scopes, for metrics (cgtree_scope_device_seconds).
  bool times_scopes = false;
  // Called on a thread of the watch with what to_string() makes of report(), and on the thread of a
  // call that meets a sticky error of the device, with the error in front of that; by default both
  // are logged as errors. Must not throw, and must not call the contexts but for what any thread
  // may.
  std::function<void(const std::string&)> on_timeout = nullptr;
};

// A ProgressWatch watches the contexts to which it is given (watch_progress()), of one
// process: several ranks of a group, for instance. It reads what the device has written into memory
// of the host, and makes no call of the device, which could hang with it.
//
// Thread safety: any thread.
class ProgressWatch {
 public:
  // Starts the thread, if there is a time limit.
  explicit ProgressWatch(ProgressOptions options = {});
  // Ends it, and waits until it has ended, but on the thread itself.
  ~ProgressWatch();
  ProgressWatch(const ProgressWatch&) = delete;
  ProgressWatch& operator=(const ProgressWatch&) = delete;

  // As they were given.
  const ProgressOptions& options() const noexcept;
  // Returns what there is now, context by context in the order of their ranks. Does not wait.
  std::vector<ContextProgressReport> report() const;

  // The next three are used by contexts, which are watched from the first to the second.
  void add(std::shared_ptr<ContextProgress> context);
  // Does nothing for one that is not watched.
  void remove(const ContextProgress& context) noexcept;
  // A device has failed with an error after which it does no more work. Reports once.
  void tell_device_failure(std::string_view what) noexcept;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the thread keeps it
};

}  // namespace cgtree
