// EventLog: tells what happens in a context, to the log, to a flight recorder and, on request, to a
// file of JSON lines.
#pragma once

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "cgtree/tree/engine.h"
#include "cgtree/values/progress.h"
#include "extensions/progress/context_progress.h"
#include "extensions/progress/replay_timer.h"
#include "extensions/watch/call_causes.h"
#include "extensions/watch/flight_recorder.h"
#include "interop/device/profiler.h"

namespace cgtree {

// An EventLog writes one object per line: "event", "time_us" (since the epoch), "context" and
// "process", then what the event is about; docs/events.md lists the fields. Writing never fails a
// call: lines that are lost are counted, and a warning is logged once. Thread safety: used by the
// thread that is inside the context.
class EventLog final : public Extension {
 public:
  // `engine`: borrowed. Throws InvalidArgument if the file cannot be opened.
  explicit EventLog(Engine& engine);
  ~EventLog() override;

  // Null: replays are watched no longer. Throws InvalidArgument: see ContextProgress.
  void watch_progress(std::shared_ptr<ProgressWatch> watch);

  // Extension.
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
  // One for each kind of event.
  void warm_up(FunctionState& function, const KeyState& key, const CallAxes& axes,
               std::chrono::microseconds us) noexcept;
  void record(const Node& node, const CallAxes& axes) noexcept;
  void replay(const Node& node, const CallAxes& axes, std::chrono::nanoseconds time) noexcept;
  void verify(const Node& node, const Divergence* divergence) noexcept;
  void unverified(const Node& node, UnverifiedReason reason) noexcept;
  void announce_skip(const FunctionState& function, const Explanation& why,
                     LogLevel level) noexcept;
  void skip(const FunctionState& function, const AnnouncedSkip& skip) noexcept;
  void evict(const Node& node, SkipReason limit) noexcept;
  void demote(const FunctionState& function, const Mismatch& last) noexcept;
  void drop(const Node& node, std::string_view what) noexcept;
  void failure(const FunctionState& function, std::string_view what, LogLevel level) noexcept;
  void counters(const Tree& tree) noexcept;

  // `line` makes the log's text, `fields` the JSON; each is called only if it is written.
  template <typename Line, typename Fields>
  void tell(LogLevel level, std::string_view event, Line&& line, Fields&& fields) noexcept;
  // Told once for each kernel. The log warns of it if that is asked for, and once for an engine.
  void foreign_pointers(const Node& node) noexcept;
  void host_memory(const Node& node) noexcept;
  void padding_not_chosen(FunctionState& function, const CallAxes& axes,
                          const Recording* recording) noexcept;
  void unsliced_output(FunctionState& function, const Recording& recording,
                       const CallAxes& axes) noexcept;
  // The next two are told once for each function.
  void never_recorded(const FunctionState& function, const CallCauses::WarmUp& last) noexcept;
  void recorded_again(const Node& last, std::uint64_t recordings) noexcept;
  void copied_outputs(const Node& node) noexcept;
  void launched_nothing(const FunctionState& function) noexcept;
  // Of those that have ended meanwhile.
  void write_replay_times() noexcept;
  std::shared_ptr<const void> profiler_range(std::string_view what, const FunctionState& function,
                                             std::uint64_t recording, const InputList* inputs,
                                             std::optional<SkipReason> reason) const;
  std::string about(const ContextOptions& options) const;
  // Returns what the recorder is told: of a node, or of the function alone.
  FlightEntry entry(FlightEvent event, const FunctionState& function) const noexcept;
  FlightEntry entry(FlightEvent event, const Node& node) const noexcept;
  // The call that was running has ended with this.
  void note_end(const FlightEntry& entry) noexcept;
  template <typename Fields>
  void write(std::string_view event, Fields&& fields) noexcept;

  Engine& engine_;
  const ContextMemory& memory_;
  const std::string path_;
  const std::string context_;
  const std::int64_t process_;
  const bool has_replays_;
  const bool warns_of_foreign_;
  const bool is_profiled_ = profiler_listens();
  mutable std::atomic<bool> has_warned_of_scopes_ = false;
  std::set<std::string> foreign_to_;         // the kernels that were told of
  std::set<std::uint32_t> has_host_memory_;  // the functions that were told of
  std::ofstream file_;
  struct GiveBack {
    void operator()(FlightRecorder* recorder) const noexcept { recorder->give_back(); }
  };
  std::unique_ptr<FlightRecorder, GiveBack> recorder_;  // not null
  std::size_t lost_lines_ = 0;
  ReplayTimer timer_;
  CallCauses causes_;
  std::shared_ptr<ProgressWatch> watch_;  // null: none
  std::shared_ptr<ContextProgress> progress_;
};

// Returns the event log of a context. Requires: it has one.
EventLog& event_log_of(const Engine& engine);

// Returns {"kind", "recorded", "given", "text"}, and of an input its number and name.
nlohmann::ordered_json change_json(const Mismatch& mismatch);
// The same of two warm-ups.
nlohmann::ordered_json changed_json(const Mismatch& changed);
// Returns {"nearest", "changes"}: what kept the nearest recording from being replayed, as events
// and snapshots say it.
nlohmann::ordered_json cause_json(const Explanation& why);

}  // namespace cgtree
