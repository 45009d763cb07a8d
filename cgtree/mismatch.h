// Mismatch and Change: why a recording does not fit a call, with both sides.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cgtree {

// The first reason that was found: all that a decision needs.
struct Mismatch {
  enum class Kind {
    kNone,            // it fits
    kUnusable,        // input `input` holds nothing, or is stale
    kInputCount,      // recorded, given: numbers of inputs
    kSignature,       // shape, strides, dtype or device of input `input`
    kStaticAddress,   // recorded, given: addresses
    kManagedAddress,  // recorded, given: addresses of an output of an earlier call
    kOverlap,         // input `input` shares memory with another, of which a copy would not know
    kFootprint,       // somebody holds an output that the recording would overwrite
  };

  Kind kind = Kind::kNone;
  std::uint32_t input = 0;
  std::uintptr_t recorded = 0;
  std::uintptr_t given = 0;

  bool fits() const noexcept { return kind == Kind::kNone; }
};

// "static_address", ...: for JSON.
std::string_view name(Mismatch::Kind kind) noexcept;

// One of all the mismatches between a recording and a call, as text.
struct Change {
  Mismatch::Kind kind = Mismatch::Kind::kNone;
  std::uint32_t input = 0;  // not of kInputCount and kFootprint
  std::string input_name;   // InputOptions::name; may be empty
  // Addresses, types or counts; of kFootprint: what the recording writes, and what is held there;
  // of kOverlap: the other input, and where the two meet.
  std::string recorded;
  std::string given;
  std::uint32_t other = 0;  // kOverlap: the other input

  bool is_of_input() const noexcept {
    return kind != Mismatch::Kind::kInputCount && kind != Mismatch::Kind::kFootprint;
  }
  friend bool operator==(const Change&, const Change&) = default;
};

// "static input 1 'weights': 0x7f00 recorded, 0x7e00 given".
std::string to_string(const Change& change);

// What keeps a call from replaying.
struct Cause {
  std::uint32_t nearest = 0;  // the node it was compared with; 0: the function had no recording
  std::vector<Change> changes;
};

}  // namespace cgtree
