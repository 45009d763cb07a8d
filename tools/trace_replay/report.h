// What a replay found, as a table for people and as JSON.
#pragma once

#include <string>

#include "tools/trace_replay/replay.h"
#include "tools/trace_replay/rmm_log.h"

namespace cgtree::tools {

std::string to_text(const Trace& trace, const ReplayResult& result);
std::string to_json(const Trace& trace, const ReplayResult& result, const std::string& path,
                    const std::string& device);

// Throws InvalidArgument when the file cannot be written.
void write_file(const std::string& path, const std::string& text);

}  // namespace cgtree::tools
