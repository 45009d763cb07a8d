// Writes the lines of the log for standard error with spdlog.
#include "extensions/all/log_writer.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

#include "base/log.h"

namespace cgtree {
namespace {

void write(LogLevel level, const std::string& line) {
  // Never destroyed, so that a destructor at exit may still log.
  static auto* const out = [] {
    auto* const made =
        new spdlog::logger("cgtree", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_level(spdlog::level::trace);
    return made;
  }();
  out->log(static_cast<spdlog::level::level_enum>(level), line);
}

}  // namespace

void use_spdlog() {
  write_log_with(write);
}

}  // namespace cgtree
