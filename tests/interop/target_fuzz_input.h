// Any text is a target that survives being written and read again, or is refused.
#pragma once

#include <string_view>

namespace cgtree {

// True if it is a target. What is neither throws std::logic_error, or whatever was thrown.
bool read_and_write_again(std::string_view text);

}  // namespace cgtree
