// Bytes as steps of a modelled pool, for the fuzzer and its plain test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/allocator/modelled_pool.h"

namespace cgtree {

// A step is the byte of its action, modulo their number, and three bytes of value, the lowest
// first; missing bytes at the end are 0. Any bytes are legal; bytes after 256 steps are ignored, so
// that each input is fast.
std::vector<Step> steps_of(std::span<const std::uint8_t> bytes);

// Executes the steps after the first byte, which selects how the new pool grows; throws
// std::logic_error where it differs from its model.
void take_steps_of(std::span<const std::uint8_t> bytes);

}  // namespace cgtree
