// InputChange: what about one input keeps a recording from being replayed, with both sides.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cgtree {

struct InputChange {
  enum class Kind {
    kUnusable,        // it holds nothing, or is stale
    kSignature,       // shape, strides, dtype or device
    kStaticAddress,   // recorded, given: addresses of a static input
    kManagedAddress,  // recorded, given: addresses of an output of an earlier call
  };

  Kind kind = Kind::kUnusable;
  std::uint32_t input = 0;      // its position
  std::string input_name;       // InputOptions::name; may be empty
  std::uintptr_t recorded = 0;  // 0 where the kind has no addresses
  std::uintptr_t given = 0;

  friend bool operator==(const InputChange&, const InputChange&) = default;
};

// "static_address", ...: for JSON.
std::string_view name(InputChange::Kind kind) noexcept;

// "static input 2 'weights': address 0x7f00 recorded, 0x7e00 given".
std::string to_string(const InputChange& change);

}  // namespace cgtree
