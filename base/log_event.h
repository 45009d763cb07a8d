// log_event(): formats an event of the library for the logger.
#pragma once

#include "base/format.h"
#include "base/log.h"

namespace cgtree {

// Formats and writes `event key=value ...` if the level is enabled.
template <typename... Arguments>
void log_event(LogLevel level, PatternFor<Arguments...> pattern,
               const Arguments&... arguments) noexcept {
  if (!log_enabled(level)) return;
  try {
    log_line(level, str_format<Arguments...>(pattern, arguments...));
  } catch (...) {
    log_line(level, "log event lost: formatting failed");
  }
}

}  // namespace cgtree
