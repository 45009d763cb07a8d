// to_text(), to_json(): the results of a replay, as a table and as JSON.
#pragma once

#include <string>

#include "tests/support/rmm_log.h"
#include "tools/trace_replay/replay.h"

namespace cgtree::tools {

std::string to_text(const Trace& trace, const ReplayResult& result);

// A Run describes a replay: the trace and the options.
struct Run {
  std::string trace;
  std::string device;
  std::string growth;
};
std::string to_json(const Trace& trace, const ReplayResult& result, const Run& run);

// Throws InvalidArgument if the file cannot be written.
void write_file(const std::string& path, const std::string& text);

}  // namespace cgtree::tools
