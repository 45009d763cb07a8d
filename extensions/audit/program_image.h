// is_in_program_image(): tells static storage from the heap and the stack.
#pragma once

#include <cstdint>

namespace cgtree {

// Returns whether the address lies in a segment of the program or of a library that is loaded: a
// constant or a variable with static storage, which stays as long as they do.
bool is_in_program_image(std::uintptr_t address) noexcept;

}  // namespace cgtree
