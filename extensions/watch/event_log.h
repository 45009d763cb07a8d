// EventLog: writes the events of a context to the log, to a flight recorder and, on request, to a
// file of JSON lines.
#pragma once

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "cgtree/tree/engine.h"
#include "extensions/progress/context_progress.h"
#include "extensions/progress/progress_watch.h"
#include "extensions/progress/replay_timer.h"
#include "extensions/watch/call_causes.h"
#include "extensions/watch/event_record.h"
#include "extensions/watch/flight_recorder.h"
#include "extensions/watch/watch.h"
#include "interop/device/profiler.h"

namespace cgtree {

// An EventLog writes one object per line: "event", "time_us" (since the epoch), "context" and
// "process", then the fields of the event; docs/events.md lists them. Writing never fails a call:
// lost lines are counted, and a warning is logged once. Thread safety: used by the thread that is
// inside the context.
class EventLog final : public Extension {
 public:
  // `engine`: borrowed. Throws InvalidArgument if the file cannot be opened.
  EventLog(const WatchOptions& options, Engine& engine);
  ~EventLog() override;

  // Null: replays are not watched any more. Throws InvalidArgument: see ContextProgress.
  void watch_progress(std::shared_ptr<ProgressWatch> watch);

  // Extension.
  int order() const noexcept override { return -300; }
  void after(const CallEvent& event) noexcept override;
  Wants wants() const noexcept override {
    return {.replays = has_replays_ || is_profiled_ || timer_.is_on() || progress_ != nullptr,
            .skips = !path_.empty()};
  }
  std::shared_ptr<const void> open_replay(Node& node, const InputList& inputs) noexcept override;
  void begin_launch() noexcept override;
  std::shared_ptr<const void> open_range(std::string_view what, const FunctionState& function,
                                         std::uint64_t recording, const InputList* inputs,
                                         std::optional<SkipReason> reason) const noexcept override;
  void explain(Explanation& why, const FunctionState& function, const Call& call) const override;

  const FlightRecorder& recorder() const noexcept { return *recorder_; }
  const ReplayTimer& timer() const noexcept { return timer_; }
  const CallCauses& causes() const noexcept { return causes_; }

 private:
  // One function for each kind of event.
  void warm_up(const CallEvent& event) noexcept;
  void record(const Node& node, const CallAxes& call) noexcept;
  void replay(const Node& node, const CallAxes& call, std::chrono::nanoseconds time) noexcept;
  void verify(const Node& node, const Divergence* divergence) noexcept;
  void announce_skip(const CallEvent& event) noexcept;
  void skip(const FunctionState& function, const AnnouncedSkip& skip) noexcept;
  void evict(const Node& node, SkipReason limit) noexcept;
  void demote(const FunctionState& function, const Mismatch& last) noexcept;
  void drop(const Node& node, std::string_view what) noexcept;
  void failure(const FunctionState& function, std::string_view what, LogLevel level) noexcept;

  // Written once for each kernel. The log warns of it if the option asks for that, and once for an
  // engine.
  void foreign_pointers(const Node& node) noexcept;
  void host_memory(const Node& node) noexcept;
  // Warns of the first of the notes that notes() returns, unless `was_told`.
  template <typename Notes>
  void warn_once(bool& was_told, std::string_view event, const FunctionState& function,
                 Notes&& notes) noexcept;
  void warn_of_padding(FunctionState& function, const CallAxes& axes,
                       const Recording* recording) noexcept;
  // The next two are written once for each function.
  void never_recorded(const FunctionState& function, const CallCauses::WarmUp& last) noexcept;
  void recorded_again(const Node& last, std::uint64_t recordings) noexcept;
  void copied_outputs(const Node& node) noexcept;
  // Writes the times of replays that ended meanwhile.
  void write_replay_times() noexcept;
  std::shared_ptr<const void> profiler_range(std::string_view what, const FunctionState& function,
                                             std::uint64_t recording, const InputList* inputs,
                                             std::optional<SkipReason> reason) const;
  // Returns the sizes of a call with a graph, if the file has them.
  std::vector<AxisInUse> sizes_of(const FunctionState& function,
                                  const CallAxes& axes) const noexcept;
  // Writes to the log and the file.
  void say(const EventRecord& event) noexcept;
  // Writes to the recorder, too, if it keeps events of the kind.
  void tell(const EventRecord& event) noexcept;
  void write(const EventRecord& event) noexcept;

  Engine& engine_;
  const ContextMemory& memory_;
  const std::string path_;
  const std::string context_;
  const std::int64_t process_;
  const bool has_replays_;
  const bool is_profiled_ = profiler_listens();
  mutable std::atomic<bool> has_warned_of_scopes_ = false;
  std::set<std::string> foreign_to_;         // the kernels already reported
  std::set<std::uint32_t> has_host_memory_;  // the functions already reported
  std::ofstream file_;
  struct GiveBack {
    void operator()(FlightRecorder* recorder) const noexcept { recorder->give_back(); }
  };
  std::unique_ptr<FlightRecorder, GiveBack> recorder_;  // not null
  std::size_t lost_lines_ = 0;
  ReplayTimer timer_;
  CallCauses causes_;
  std::shared_ptr<ProgressWatch> watch_;  // null: no watch
  std::shared_ptr<ContextProgress> progress_;
};

// Returns the event log of a context. Requires: it has one.
EventLog& event_log_of(const Engine& engine);

}  // namespace cgtree
