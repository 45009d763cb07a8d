// The report of a ProgressWatch as JSON, to merge the reports of several processes.
#pragma once

#include <span>
#include <string>

#include "extensions/progress/progress_watch.h"

namespace cgtree {

// Returns one line of JSON, which the program `cgtree_report` reads: docs/hangs.md. A pure
// function.
std::string progress_json(std::span<const ContextProgressReport> contexts);

}  // namespace cgtree
