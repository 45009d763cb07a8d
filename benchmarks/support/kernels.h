// The least work that a benchmark can ask of a device: one kernel of one element.
#pragma once

#include <span>

#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree::benchmarks {

void launch_trivial_kernel(StreamRef stream, float* x);

// A step function of one such kernel and one output of one element. It reads the first input, where
// there is one.
Tensor trivial_step(std::span<const Tensor> inputs);

}  // namespace cgtree::benchmarks
