// is_in_program_image(): tells static storage from the heap and the stack.
#pragma once

#include <cstdint>

namespace cgtree {

// Returns whether the address lies in a segment of the program or of a loaded library: a constant
// or a variable with static storage, which lives as long as its segment.
bool is_in_program_image(std::uintptr_t address) noexcept;

}  // namespace cgtree
