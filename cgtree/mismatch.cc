// Names and sentences for mismatches.
#include "cgtree/mismatch.h"

#include <fmt/format.h>

namespace cgtree {

std::string_view name(Mismatch::Kind kind) noexcept {
  switch (kind) {
    case Mismatch::Kind::kNone:
      return "none";
    case Mismatch::Kind::kUnusable:
      return "unusable";
    case Mismatch::Kind::kInputCount:
      return "input_count";
    case Mismatch::Kind::kSignature:
      return "signature";
    case Mismatch::Kind::kStaticAddress:
      return "static_address";
    case Mismatch::Kind::kManagedAddress:
      return "managed_address";
    case Mismatch::Kind::kOverlap:
      return "overlap";
    case Mismatch::Kind::kFootprint:
      return "footprint";
  }
  return "unknown";
}

std::string to_string(const Change& change) {
  using Kind = Mismatch::Kind;
  if (change.kind == Kind::kFootprint) {
    return fmt::format("{} is held, where it writes {}", change.given, change.recorded);
  }
  if (change.kind == Kind::kInputCount) {
    return fmt::format("{} inputs recorded, {} given", change.recorded, change.given);
  }
  const std::string input =
      fmt::format("input {}{}", change.input,
                  change.input_name.empty() ? "" : fmt::format(" '{}'", change.input_name));
  if (change.kind == Kind::kOverlap) {
    return fmt::format("{} shares memory with {}: {}", input, change.recorded, change.given);
  }
  const char* const treatment = change.kind == Kind::kStaticAddress    ? "static "
                                : change.kind == Kind::kManagedAddress ? "managed "
                                                                       : "";
  return fmt::format("{}{}: {} recorded, {} given", treatment, input, change.recorded,
                     change.given);
}

}  // namespace cgtree
