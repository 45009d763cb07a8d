// A user's kernel that draws random numbers, the same on every device.
#pragma once

#include "interop/random/generator.h"
#include "interop/tensor/tensor.h"

namespace cgtree::testing {

// Returns a new tensor: x plus a uniform number for each element, with a separate block for each.
Tensor add_noise(const Tensor& x, const Generator& generator);

// Launches a kernel that fails while *refused is true; on the host device only.
void launch_refusable(const bool* refused);

}  // namespace cgtree::testing
