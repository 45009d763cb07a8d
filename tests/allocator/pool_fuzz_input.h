// Bytes as steps of a modelled pool: what the fuzzer and its plain test share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/allocator/modelled_pool.h"

namespace cgtree {

// Each step is the byte of its action, modulo their number, and three bytes of value, the lowest
// first; what is missing at the end is 0. Any bytes are legal; after 256 steps the rest is ignored,
// so that no input is slow.
std::vector<Step> steps_of(std::span<const std::uint8_t> bytes);

// Takes the steps that follow the first byte, which picks how the new pool grows; throws
// std::logic_error where it disagrees with its model.
void take_steps_of(std::span<const std::uint8_t> bytes);

}  // namespace cgtree
