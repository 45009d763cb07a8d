// The __global__ function of marks. It is a header of its own because nvcc compiles the definition
// and the C++ compiler its only user, mark_words.cc.
#pragma once

namespace cgtree::cuda {

// Returns the address of the kernel (uint64* words, uint64 cleared, uint64 word), which takes one
// block of one dimension.
const void* write_clock_function() noexcept;
// Has the current device load it, which may wait for all of the device's work.
void load_write_clock() noexcept;

}  // namespace cgtree::cuda
