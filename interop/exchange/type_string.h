// TypeString: the type of an element as the array interfaces write it, for example "<f4".
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
  char byte_order = '|';   // '<', '|' (irrelevant) or '=' (native); never '>'
  char kind = 'V';         // one of "tbiufcmMSUV"
  std::int64_t count = 1;  // positive: bits for kind 't', characters for 'U', else bytes
  std::string unit;        // the unit of times, such as "[ns]", or empty

  bool operator==(const TypeString&) const = default;
};

// Throws BoundaryError for text that is no type string, for elements whose bytes are swapped, and
// for Python objects.
TypeString parse_type_string(std::string_view text);

std::string to_string(const TypeString& type);

// Returns the bytes of one element; nothing if an element is less than a byte.
std::optional<std::int64_t> element_bytes(const TypeString& type);

// Returns nothing if there is no such DType: times, strings, records.
std::optional<DType> to_dtype(const TypeString& type);

// Returns bytes of kind 'V' for bfloat16 and floats of eight bits, which have no letter, as other
// libraries do.
TypeString to_type_string(DType dtype);

}  // namespace cgtree
