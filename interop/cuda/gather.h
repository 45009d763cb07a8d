// The __global__ functions of gather.
#pragma once

#include <cstddef>

namespace cgtree::cuda {

// Address of the kernel that takes `capacity` sources: 1, 4, 16, 64 or 256.
const void* gather_function(std::size_t capacity) noexcept;

}  // namespace cgtree::cuda
