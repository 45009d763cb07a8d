// EventLog: tells what happens in a context, to the log and, on request, to a file of JSON lines.
//
// A line is one object: "event" and "time_us" (since the epoch), then what the event is about;
// docs/events.md lists the fields. Writing never fails a call: what is lost is counted, and said
// once.
#pragma once

#include <fstream>
#include <string>
#include <string_view>

#include "base/log.h"
#include "cgtree/mismatch.h"
#include "cgtree/options.h"
#include "cgtree/tree/node.h"

namespace cgtree {

// Threads: the lane's.
class EventLog {
 public:
  // Throws InvalidArgument when the file cannot be opened.
  explicit EventLog(const ContextOptions& options);

  void warm_up(const FunctionState& function, const KeyState& key,
               std::uint64_t generation) noexcept;
  // Of a function whose recording holds no work of its own.
  void launched_nothing(const FunctionState& function) noexcept;
  void record(const Node& node, std::uint64_t generation) noexcept;
  void replay(const Node& node) {
    if (has_replays_ || log_enabled(LogLevel::kTrace)) [[unlikely]] {
      write_replay(node);
    }
  }
  // Whether somebody reads of a skip. `warns`: for the first time.
  bool tells_skip(bool warns) const noexcept {
    return !path_.empty() || log_enabled(skip_level(warns));
  }
  // `what`: more than the reason says, may be empty.
  void skip(const FunctionState& function, SkipReason reason, const std::string& what, bool warns,
            const Cause& cause) noexcept;
  void evict(const Node& node, SkipReason limit) noexcept;
  // The input will be copied; `last` is the change that was one too many.
  void demote(const FunctionState& function, const Change& last) noexcept;
  void failure(const FunctionState& function, std::string_view what) noexcept;

  std::size_t lost_lines() const { return lost_lines_; }

 private:
  static LogLevel skip_level(bool warns) noexcept {
    return warns ? LogLevel::kWarn : LogLevel::kDebug;
  }
  // `fields` makes the JSON; only where there is a file.
  template <typename Line, typename Fields>
  void tell(LogLevel level, std::string_view event, Line&& line, Fields&& fields) noexcept;
  template <typename Fields>
  void write(std::string_view event, Fields&& fields) noexcept;
  void write_replay(const Node& node) noexcept;

  const std::string path_;
  const bool has_replays_;
  std::ofstream file_;
  std::size_t lost_lines_ = 0;
};

}  // namespace cgtree
