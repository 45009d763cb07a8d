// log_event(): formats an event of the library for the logger.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "base/log.h"

namespace cgtree {

// Formats and writes `event key=value ...` if the level is enabled.
template <typename... Args>
void log_event(LogLevel level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (!log_enabled(level)) return;
  try {
    log_line(level, fmt::format(format, std::forward<Args>(args)...));
  } catch (...) {
    log_line(level, "log event lost: formatting failed");
  }
}

}  // namespace cgtree
