// A kernel that draws random numbers as a C program's kernel would, on every device.
#pragma once

#include "bindings/c/c_api.h"
#include "interop/device/stream.h"

namespace cgtree::testing {

// y[i] = a uniform number of the first word of block i.
void launch_draws(StreamRef stream, const cgt_philox_range& range, float* y, std::int64_t count);

}  // namespace cgtree::testing
