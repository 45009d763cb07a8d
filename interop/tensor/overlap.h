// Overlap: whether two tensors may share bytes, told from their addresses and strides.
#pragma once

#include "interop/tensor/tensor.h"

namespace cgtree {

// False only where no byte belongs to both. Exact for tensors that are dense, that lie apart, or
// that are different columns of one table; else a true may be wrong. Looks at no memory, and takes
// none.
bool may_overlap(const Tensor& a, const Tensor& b) noexcept;

// Whether an element may lie over another of the same tensor, as those of a broadcast axis do.
bool may_overlap_itself(const Shape& shape) noexcept;

}  // namespace cgtree
