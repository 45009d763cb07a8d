// EventLog: tells what happens in a context, to the log and, on request, to a file of JSON lines.
#pragma once

#include <chrono>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "cgtree/options.h"
#include "cgtree/tree/tree.h"
#include "interop/device/profiler.h"

namespace cgtree {

// A skip that was announced, until its eager run has ended.
struct AnnouncedSkip {
  std::optional<Explanation> why;  // if it is to be written
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
};

// An EventLog writes one object per line: "event", "time_us" (since the epoch), "context" and
// "process", then what the event is about; docs/events.md lists the fields. Writing never fails a
// call: lines that are lost are counted, and a warning is logged once. Thread safety: used by the
// thread that is inside the context.
class EventLog {
 public:
  // Throws InvalidArgument if the file cannot be opened.
  EventLog(const ContextOptions& options, const ContextMemory& memory);

  // `us`: how long the call took, without what it has enqueued.
  void warm_up(const FunctionState& function, const KeyState& key, const CallAxes& axes,
               std::chrono::microseconds us) noexcept;
  // Tells that the function's recording holds no work of its own.
  void launched_nothing(const FunctionState& function) noexcept;
  // Tells of an output that is handed out with the padded size.
  void unsliced_output(const FunctionState& function, std::string_view what) noexcept;
  // Tells that many recordings were made because outputs are held, and mark_step() was not called.
  void held_outputs(const Node& last) noexcept;
  void record(const Node& node, const CallAxes& axes) noexcept;
  // Tells of the foreign memory that the recording refers to, once for each kernel. The log warns
  // of it if that is asked for, and once for an engine.
  void foreign_pointers(const Node& node) noexcept;
  void replay(const Node& node, const CallAxes& axes, std::chrono::nanoseconds time) noexcept;
  // `divergence`: of the replay from an eager run, or null.
  void verify(const Node& node, const Divergence* divergence) noexcept;
  void unverified(const Node& node, UnverifiedReason reason) noexcept;
  // Returns whether a skip would be written anywhere. `warns`: it is the first for its reason.
  bool tells_skip(bool warns) const noexcept {
    return !path_.empty() || log_enabled(skip_level(warns));
  }
  // Tells the log that the call is about to run eagerly. Requires: why.skip_reason.
  void announce_skip(const FunctionState& function, const Explanation& why, bool warns) noexcept;
  // Writes that it did.
  void skip(const FunctionState& function, const AnnouncedSkip& skip) noexcept;
  void evict(const Node& node, SkipReason limit) noexcept;
  // Tells that the input will be copied; `last` is the move that was one too many.
  void demote(const FunctionState& function, const Mismatch& last) noexcept;
  // Tells that the recording goes because it cannot be replayed any more.
  void drop(const Node& node, std::string_view what) noexcept;
  void failure(const FunctionState& function, std::string_view what,
               LogLevel level = LogLevel::kWarn) noexcept;

  // Writes what the context holds now.
  void counters(const Tree& tree) noexcept;

  std::size_t lost_lines() const { return lost_lines_; }
  // Whether ranges are opened for a profiler that listened when the context was made.
  bool is_profiled() const noexcept { return is_profiled_; }

 private:
  static LogLevel skip_level(bool warns) noexcept {
    return warns ? LogLevel::kWarn : LogLevel::kDebug;
  }
  // `line` makes the log's text, `fields` the JSON; each is called only if it is written.
  template <typename Line, typename Fields>
  void tell(LogLevel level, std::string_view event, Line&& line, Fields&& fields) noexcept;
  void open(const ContextOptions& options) noexcept;
  template <typename Fields>
  void write(std::string_view event, Fields&& fields) noexcept;

  const ContextMemory& memory_;
  const std::string path_;
  const std::string context_;
  const std::int64_t process_;
  const bool has_replays_;
  const bool warns_of_foreign_;
  const bool is_profiled_ = profiler_listens();
  std::set<std::string> foreign_to_;  // the kernels that were told of
  std::ofstream file_;
  std::size_t lost_lines_ = 0;
};

// Returns {"nearest", "changes"}: what kept the nearest recording from being replayed, as events
// and snapshots say it.
nlohmann::ordered_json cause_json(const Explanation& why);

}  // namespace cgtree
