// Small step functions on float tensors, the same on every device.
#pragma once

#include <cstdint>

#include "interop/tensor/tensor.h"

namespace cgtree::testing {

// Return new tensors of x's shape, made on current_stream(). Inputs may have any strides.
Tensor affine(const Tensor& x, float scale, float shift);  // scale * x + shift
Tensor add(const Tensor& x, const Tensor& y);
// In place: x = scale * x + shift.
void update(const Tensor& x, float scale, float shift);

}  // namespace cgtree::testing
