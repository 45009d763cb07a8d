// The lines of the log with their time, and in colours on a terminal.
#pragma once

namespace cgtree {

// From then on spdlog writes the lines for standard error.
void use_spdlog();

}  // namespace cgtree
