// TypeString: the type of an element in the notation of the array interfaces, for example "<f4".
//
// Source: the typestr of NumPy's array interface, to which the CUDA Array Interface refers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "interop/tensor/dtype.h"

namespace cgtree {

// A TypeString is read once, and kept as text for messages.
struct TypeString {
  std::string text;
  std::optional<DType> dtype;  // none: times, strings, records
  std::int64_t bytes = 0;      // of one element; 0 if not a whole number
};

// Throws BoundaryError for text that is not a type string, for elements whose bytes are swapped,
// and for Python objects.
TypeString parse_type_string(std::string_view text);

// Bfloat16 and floats of eight bits, which have no letter, are bytes of kind 'V', as other
// libraries write them.
TypeString type_string_of(DType dtype);

}  // namespace cgtree
