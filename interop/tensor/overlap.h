// Overlap: whether two tensors may share bytes, decided from their addresses and strides.
#pragma once

#include "interop/tensor/tensor.h"

namespace cgtree {

// Returns false only if no byte belongs to both tensors. The result is exact for tensors that are
// dense, that lie apart, or that are different columns of one table; otherwise a true may be wrong.
// Reads no memory and does not allocate.
bool may_overlap(const Tensor& a, const Tensor& b) noexcept;

// Returns whether an element may share bytes with another of the same tensor, as those of a
// broadcast axis do.
bool may_overlap_itself(const Shape& shape) noexcept;

}  // namespace cgtree
