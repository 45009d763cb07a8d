// A kernel that draws random numbers as a kernel of a C program would, on every device.
#pragma once

#include "bindings/c/c_api.h"
#include "interop/device/stream.h"

namespace cgtree::testing {

// y[i] = the uniform number of the first word of block i.
void launch_draws(StreamRef stream, const cgt_philox_range& range, float* y, std::int64_t count);

}  // namespace cgtree::testing
