// The __global__ function of marks. A separate header, because nvcc compiles the definition and the
// C++ compiler its only user, mark_words.cc.
#pragma once

namespace cgtree::cuda {

// Returns the address of the kernel (uint64* words, uint64 cleared, uint64 word), which takes one
// block of one dimension.
const void* write_clock_function() noexcept;
// Makes the current device load the kernel, which may wait for all of the device's work.
void load_write_clock() noexcept;

}  // namespace cgtree::cuda
