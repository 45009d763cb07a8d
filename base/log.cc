// Passes lines to the current sink.
#include "base/log.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "base/format.h"
#include "base/mutex.h"

namespace cgtree {
namespace {

constexpr std::array kLevelNames = {"trace", "debug", "info", "warning", "error", "off"};

// Writes a line with one call, so that lines of several processes do not mix.
void write_plain(LogLevel level, const std::string& line) {
  const std::string text =
      str_format("[cgtree] [{}] {}\n", kLevelNames[static_cast<std::size_t>(level)], line);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

LogLevel level_from_environment() {
  const char* text = std::getenv("CGTREE_LOG");
  if (text == nullptr) return LogLevel::kWarn;
  const std::string_view name(text);
  if (name == "trace") return LogLevel::kTrace;
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "error") return LogLevel::kError;
  if (name == "off") return LogLevel::kOff;
  return LogLevel::kWarn;
}

// The logger is process-wide, as standard error is. It is never destroyed, so that a destructor
// that runs at exit may still log.
struct Logger {
  Mutex<LockRank::kLog> mutex;
  LogSink sink = nullptr;  // guarded by mutex
  // Guarded by mutex. Writes to standard error if there is no sink.
  void (*write)(LogLevel, const std::string&) = write_plain;
};

Logger& logger() {
  static Logger* const instance = new Logger;
  return *instance;
}

// Returns the text as one line, with its line breaks escaped.
std::string in_one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\r') {
      line += "\\r";
    } else {
      line += c;
    }
  }
  return line;
}

}  // namespace

namespace detail {

constinit std::atomic<int> log_level{-1};

int read_log_level() noexcept {
  int unread = -1;  // set_log_level() on another thread has precedence
  log_level.compare_exchange_strong(unread, static_cast<int>(level_from_environment()));
  return log_level.load(std::memory_order_relaxed);
}

}  // namespace detail

void set_log_level(LogLevel level) {
  detail::log_level.store(static_cast<int>(level), std::memory_order_relaxed);
}

void log_line(LogLevel level, std::string_view line) noexcept {
  try {
    if (line.find_first_of("\n\r") != line.npos) [[unlikely]] {
      return log_line(level, in_one_line(line));
    }
    Logger& log = logger();
    std::lock_guard lock(log.mutex);
    if (log.sink) {
      log.sink(level, std::string(line));
    } else {
      log.write(level, std::string(line));
    }
  } catch (...) {  // There is nowhere to report it.
  }
}

void write_log_with(void (*write)(LogLevel, const std::string& line)) {
  Logger& log = logger();
  std::lock_guard lock(log.mutex);
  log.write = write;
}

void set_log_sink(LogSink sink) {
  Logger& log = logger();
  std::lock_guard lock(log.mutex);
  log.sink = std::move(sink);
}

}  // namespace cgtree
