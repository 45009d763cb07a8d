// The least work that a device can do: one kernel of one element.
#pragma once

#include <span>

#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree::benchmarks {

void launch_trivial_kernel(StreamRef stream, float* x);

// The same, with a parameter of 256, 1024 or 4000 bytes: the least of these that is not smaller.
void launch_wide_kernel(StreamRef stream, float* x, int parameter_bytes);

// A step function with `consumers` trivial kernels, each of which reads the first input, and as
// many outputs.
std::vector<Tensor> many_readers(std::span<const Tensor> inputs, int consumers);

// A step function with one trivial kernel and one output of one element. It reads the first input,
// if there is one.
Tensor trivial_step(std::span<const Tensor> inputs);

}  // namespace cgtree::benchmarks
