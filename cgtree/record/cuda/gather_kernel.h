// The __global__ functions of gather. A separate header, because nvcc compiles the definition, and
// the C++ compiler its only user, gather.cc.
#pragma once

#include <cstddef>

namespace cgtree::cuda {

// Returns the address of the kernel that takes `capacity` words: 1, 4, 16, 64 or 256.
const void* gather_function(std::size_t capacity) noexcept;
// Returns the address of the kernel of write_values().
const void* write_function() noexcept;

}  // namespace cgtree::cuda
