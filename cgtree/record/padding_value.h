// padding_value(): the bytes of one element.
#pragma once

#include <array>
#include <cstddef>

#include "interop/tensor/dtype.h"

namespace cgtree {

// The first size_of(dtype) bytes are `value`, rounded to nearest where the type is a floating one.
// Throws InvalidArgument where the type cannot hold it: out of its range, or a fraction of an
// integer.
std::array<std::byte, 8> padding_value(double value, DType dtype);

}  // namespace cgtree
