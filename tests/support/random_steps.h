// A kernel of a user's own that draws, the same on every device.
#pragma once

#include "interop/random/generator.h"
#include "interop/tensor/tensor.h"

namespace cgtree::testing {

// A new tensor: x plus a uniform number for each element, from a block of its own each.
Tensor add_noise(const Tensor& x, const Generator& generator);

// A kernel that fails while *refused is true; on the host device only.
void launch_refusable(const bool* refused);

}  // namespace cgtree::testing
