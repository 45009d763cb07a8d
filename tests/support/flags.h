// Kernels that write the conditions of branches and loops, the same on every device.
#pragma once

#include "interop/tensor/tensor.h"

namespace cgtree::testing {

// flag = 1 if x[0] > limit, else 0. `x`: float32; `flag`: one int32. On current_stream().
void compare(const Tensor& x, float limit, const Tensor& flag);
// index = floor(x[0]). `x`: float32; `index`: one int32. On current_stream().
void round_down(const Tensor& x, const Tensor& index);

}  // namespace cgtree::testing
