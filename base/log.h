// The logger writes one line per event, `event key=value ...`.
//
// The level is `warn` unless CGTREE_LOG in the environment or set_log_level() says otherwise
// (trace, debug, info, warn, error, off). Lines go to standard error.
//
// Thread safety: every function may be called from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

namespace cgtree {

// Ordered: a line is written if its level is at least the current one, which may be kOff.
enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError, kOff };

// Takes effect at once, for all threads, whatever the environment says.
void set_log_level(LogLevel level);

namespace detail {

// Process-wide, as standard error is; below kTrace until the environment is read.
extern constinit std::atomic<int> log_level;
int read_log_level() noexcept;

}  // namespace detail

// Returns whether a line of this level would be written. It costs one load: call it first.
inline bool log_enabled(LogLevel level) noexcept {
  int least = detail::log_level.load(std::memory_order_relaxed);
  if (least < 0) [[unlikely]] {
    least = detail::read_log_level();
  }
  return static_cast<int>(level) >= least && level != LogLevel::kOff;
}

// Writes one line, with the line breaks of quoted text as
// . Never throws, so that logging cannot fail the work it describes.
void log_line(LogLevel level, std::string_view line) noexcept;

// A LogSink receives lines. Calls of it do not overlap, and it must not log.
using LogSink = std::function<void(LogLevel, const std::string& line)>;
// Sends lines to `sink` instead of standard error; nullptr restores standard error. For tests.
void set_log_sink(LogSink sink);
// Makes `write` write the lines for standard error, for example with a time and colours.
void write_log_with(void (*write)(LogLevel, const std::string& line));

}  // namespace cgtree
