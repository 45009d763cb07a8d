// TypeString: the type of an element as the array interfaces write it, "<f4".
//
// Source: the typestr of NumPy's array interface, to which the CUDA Array Interface refers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "interop/tensor/dtype.h"

namespace cgtree {

struct TypeString {
  char byte_order = '|';   // '<', '|' (does not matter) or '=' (native); never '>'
  char kind = 'V';         // one of "tbiufcmMSUV"
  std::int64_t count = 1;  // positive; of bits for kind 't', of characters for 'U', else of bytes
  std::string unit;        // of times: "[ns]", or empty

  bool operator==(const TypeString&) const = default;
};

// Throws BoundaryError for text that is none, for elements whose bytes are swapped, and for Python
// objects.
TypeString parse_type_string(std::string_view text);

std::string to_string(const TypeString& type);

// Bytes of one element; of less than a byte, none.
std::optional<std::int64_t> element_bytes(const TypeString& type);

// None where there is no such DType: complex numbers, times, strings, records.
std::optional<DType> to_dtype(const TypeString& type);

// bfloat16 has no letter: two bytes of kind 'V', as other libraries write it.
TypeString to_type_string(DType dtype);

}  // namespace cgtree
