// axis_length(): the actual size of a padded axis, for kernels that need it.
#pragma once

#include <string_view>

#include "interop/tensor/tensor.h"

namespace cgtree {

// Returns the size that the call gives the axis, as an int64 tensor of rank 0 on the device, to be
// read by kernels on current_stream() and not to be written. Replays see the size of their own
// call. In a function called by another step function it is the outer call's size.
//
// The tensor may not be returned as an output: a later replay would overwrite it.
// Requires: the calling thread is inside a step function with dynamic axes.
// Throws InvalidArgument if it is not, or if the function does not have the axis; OutOfMemory,
// DeviceError.
Tensor axis_length(std::string_view axis);

}  // namespace cgtree
