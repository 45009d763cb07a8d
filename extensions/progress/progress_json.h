// What a ProgressWatch reports as JSON, by which the reports of several processes come together.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/values/progress.h"

namespace cgtree {

// Returns one line of JSON, which read_progress() reads: docs/hangs.md. A pure function.
std::string progress_json(std::span<const ContextProgressReport> contexts);

// Returns whether it is such a line, and no other text that a report is made of.
bool is_progress(std::string_view text) noexcept;
// Returns the contexts of such a line. Throws InvalidArgument for another text, and for another
// version.
std::vector<ContextProgressReport> read_progress(std::string_view text);

// Returns the contexts of all of them, in the order of their ranks. Throws as above.
std::vector<ContextProgressReport> join_progress(std::span<const std::string> texts);

}  // namespace cgtree
