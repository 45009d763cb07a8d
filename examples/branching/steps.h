// The work of the four graphs, which is one kernel each.
#pragma once

#include "interop/tensor/tensor.h"

namespace cgtree::branching {

// Returns scale * x + shift as a new tensor, computed on current_stream().
Tensor affine(const Tensor& x, float scale, float shift);

}  // namespace cgtree::branching
