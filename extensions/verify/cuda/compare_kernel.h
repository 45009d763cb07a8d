// The __global__ functions of compare. A separate header, because nvcc compiles the definitions and
// the C++ compiler their only user, compare.cc.
#pragma once

namespace cgtree::cuda {

// Return the addresses of the kernels of compare_elements() and exchange_elements(), which take any
// number of blocks of one dimension.
const void* compare_function() noexcept;
const void* exchange_function() noexcept;

}  // namespace cgtree::cuda
