// The work of the four graphs: one kernel each.
#pragma once

#include "interop/tensor/tensor.h"

namespace cgtree::branching {

// A new tensor: scale * x + shift, on current_stream().
Tensor affine(const Tensor& x, float scale, float shift);

}  // namespace cgtree::branching
