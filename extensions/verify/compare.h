// Compare: kernels that compare the elements of two tensors, and that exchange them.
#pragma once

#include "extensions/verify/element_pairs.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// Returns the pairs of elements of two tensors. Requires: the same dims and dtype, and both on one
// device.
ElementPairs pairs_of(const Tensor& first, const Tensor& second);

// Enqueues a kernel that adds its findings to the ComparedElements at `found`, on the device.
// `tolerance`: see OutputOptions. Throws StaleTensor, DeviceError.
void compare_elements(StreamRef stream, const Tensor& replayed, const Tensor& eager,
                      double tolerance, std::uintptr_t found);

// Enqueues a kernel that gives each tensor the elements of the other; gaps between elements are not
// touched. Requires: the tensors share no memory with each other or with themselves. Throws as
// compare_elements().
void exchange_elements(StreamRef stream, const Tensor& first, const Tensor& second);

}  // namespace cgtree
