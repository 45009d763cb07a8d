// Mismatch: why a recording does not fit a call, with both sides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// One of all the mismatches between a recording and the call that got one of its own, as text.
struct Change {
  Mismatch::Kind kind = Mismatch::Kind::kNone;
  std::uint32_t input = 0;  // not of kInputCount and kFootprint
  // Addresses, types or counts; of kFootprint: what the recording writes, and what is held there.
  std::string recorded;
  std::string given;
};

// Why a recording was made.
struct Cause {
  std::uint32_t nearest = 0;  // the node it was compared with; 0: the function had no recording
  std::vector<Change> changes;
};

// "input 2: address 0x7f00 recorded, 0x7e00 given".
std::string to_string(const Mismatch& mismatch);

}  // namespace cgtree
