// ProgressWatch: says where the replays of contexts hang, by marks that they leave on the way.
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

// A mark of a replay follows nodes that were captured in the same scopes, or one collective.
struct ReplayMark {
  std::string scope;                 // the path of the scopes; "" outside of all
  std::vector<std::string> kernels;  // the first of those between the previous mark and this mark
  bool is_collective = false;
  bool is_reached = false;
};

// The progress of one replay on the device.
struct ReplayProgress {
  std::string function;
  std::uint32_t node = 0;            // the recording, as in snapshots and events
  std::uint64_t number = 0;          // among the replays of the recording, from 1
  std::chrono::milliseconds age{0};  // since it was launched
  bool has_begun = false;            // earlier work has ended
  bool has_ended = false;
  std::vector<ReplayMark> marks;  // in an order in which they may be reached; empty without marks
  std::string why_unmarked;       // the reason why there are no marks
};

// The replays of one context that have not ended, in order, after the last ended one.
struct ContextProgressReport {
  std::string context;
  std::string device;
  int rank = 0;
  int ranks = 1;
  std::vector<ReplayProgress> replays;
  std::uint64_t unwatched = 0;  // replays that were not noted, because too many had not ended
};

// Describes for each context the reached marks, the missing marks, and the kernels between them;
// and for ranks the wait of each. A pure function.
std::string to_string(std::span<const ContextProgressReport> contexts);

// The options of a ProgressWatch.
struct ProgressOptions {
  // Every n-th replay of each recording leaves marks. A second executable graph is made for them;
  // if memory is too short, that is tried again 100 ms later.
  // 0: only the next replay after one that exceeded the time limit.
  std::size_t every_nth_replay = 1;
  // The time within which a replay must end, counted from the end of earlier replays; the report
  // may be late by up to a fourth of it. A replay that exceeds it is reported once; 0: replays are
  // not reported, and report() shows them on request.
  std::chrono::milliseconds time_limit{30'000};
  // Replays that leave marks are timed by scope, for metrics (cgtree_scope_device_seconds).
  bool times_scopes = false;
  // Called on a thread of the watch with to_string(report()), and on the thread of a call that
  // meets a sticky device error, with the error before that text; by default both are logged as
  // errors. Must not throw, and may call only those functions of contexts that any thread may call.
  std::function<void(const std::string&)> on_timeout = nullptr;
};

// A ProgressWatch watches the contexts of one process that were given to it (watch_progress()), for
// instance several ranks of a group. It reads data that the device wrote into host memory, and
// never calls the device, because that call could hang, too.
//
// Thread safety: any thread.
class ProgressWatch {
 public:
  // Starts the thread if there is a time limit.
  explicit ProgressWatch(ProgressOptions options = {});
  // Ends the thread, and waits for it, except on that thread itself.
  ~ProgressWatch();
  ProgressWatch(const ProgressWatch&) = delete;
  ProgressWatch& operator=(const ProgressWatch&) = delete;

  // As they were given.
  const ProgressOptions& options() const noexcept;
  // Returns the present progress, context by context in the order of their ranks. Does not wait.
  std::vector<ContextProgressReport> report() const;

  // The next three are used by contexts, which are watched from the first to the second.
  void add(std::shared_ptr<ContextProgress> context);
  // Does nothing for a context that is not watched.
  void remove(const ContextProgress& context) noexcept;
  // Must be called when a device failed with an error that ends its work for the process. Reports
  // once.
  void tell_device_failure(std::string_view what) noexcept;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the thread keeps it
};

}  // namespace cgtree
