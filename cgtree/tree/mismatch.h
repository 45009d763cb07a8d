// Mismatch: why a recording does not fit a call, with both sides.
#pragma once

#include <cstdint>

namespace cgtree {

struct Mismatch {
  enum class Kind {
    kNone,            // it fits
    kUnusable,        // input `input` holds nothing, or is stale
    kInputCount,      // recorded, given: numbers of inputs
    kSignature,       // shape, strides, dtype or device of input `input`
    kStaticAddress,   // recorded, given: addresses
    kManagedAddress,  // recorded, given: addresses of an output of an earlier call
    kFootprint,       // somebody holds an output that the recording would overwrite
  };

  Kind kind = Kind::kNone;
  std::uint32_t input = 0;
  std::uintptr_t recorded = 0;
  std::uintptr_t given = 0;

  bool fits() const noexcept { return kind == Kind::kNone; }
};

}  // namespace cgtree
