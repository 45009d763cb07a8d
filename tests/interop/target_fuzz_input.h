// Each text is refused, or is a target that stays the same when it is written and read again.
#pragma once

#include <string_view>

namespace cgtree {

// Returns true if the text is a target, and false if it is refused. Throws on a finding.
bool read_and_write_again(std::string_view text);

}  // namespace cgtree
