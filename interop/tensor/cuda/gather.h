// The __global__ functions of gather.
#pragma once

#include <cstddef>

namespace cgtree::cuda {

// Address of the kernel that takes `capacity` words: 1, 4, 16, 64 or 256.
const void* gather_function(std::size_t capacity) noexcept;

// Address of the kernel that takes one row by value.
const void* row_function() noexcept;

}  // namespace cgtree::cuda
