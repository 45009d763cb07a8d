// The __global__ function that copies one row. A separate header, because nvcc compiles the
// definition, and the C++ compiler its only user, copy.cc.
#pragma once

namespace cgtree::cuda {

// Returns the address of the kernel that takes one row as a kernel argument.
const void* row_function() noexcept;
// Returns the address of the same kernel that also takes the addresses of sizes.
const void* measured_row_function() noexcept;

}  // namespace cgtree::cuda
