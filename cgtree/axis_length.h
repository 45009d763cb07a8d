// axis_length(): how much of a padded axis is true, for kernels that must know.
#pragma once

#include <string_view>

#include "interop/tensor/tensor.h"

namespace cgtree {

// Inside a step function with dynamic axes: the size that the call gives the axis, as an int64
// tensor of rank 0 on the device; to be read by kernels on current_stream(), not to be written.
// Replays see the size of their own call. In a function called by another step function it is the
// outer call's.
//
// It may not be returned as an output: a later replay would overwrite it. Throws InvalidArgument
// for an axis that the function does not have and outside of step functions with dynamic axes;
// OutOfMemory, DeviceError.
Tensor axis_length(std::string_view axis);

}  // namespace cgtree
