// scalar(): a number of the host's as a tensor, for step functions on any device.
#pragma once

#include <cstddef>

#include "interop/tensor/tensor.h"

namespace cgtree {

// A tensor of rank 0 on the host that holds the `bytes` bytes (at most 8) at `value`.
Tensor scalar_of(DType dtype, const void* value, std::size_t bytes);

// A tensor of rank 0 on the host. As an input of a compiled function of another device, its value
// rides along with the call, and the step function sees a tensor of rank 0 on its own device.
template <typename T>
Tensor scalar(T value) {
  return scalar_of(dtype_of<T>, &value, sizeof(value));
}

// Whether scalar() has made it; then its value may be read at any time.
bool is_scalar(const Tensor& tensor) noexcept;

// The bytes of a scalar, and zeros up to eight.
std::uint64_t scalar_word(const Tensor& scalar) noexcept;

}  // namespace cgtree
