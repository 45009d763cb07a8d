// Names and sentences for changed inputs.
#include "cgtree/input_change.h"

#include <fmt/format.h>

namespace cgtree {

std::string_view name(InputChange::Kind kind) noexcept {
  switch (kind) {
    case InputChange::Kind::kUnusable:
      return "unusable";
    case InputChange::Kind::kSignature:
      return "signature";
    case InputChange::Kind::kStaticAddress:
      return "static_address";
    case InputChange::Kind::kManagedAddress:
      return "managed_address";
  }
  return "unknown";
}

std::string to_string(const InputChange& change) {
  const std::string input = change.input_name.empty()
                                ? fmt::format("input {}", change.input)
                                : fmt::format("input {} '{}'", change.input, change.input_name);
  switch (change.kind) {
    case InputChange::Kind::kUnusable:
      return input + " holds nothing, or is stale";
    case InputChange::Kind::kSignature:
      return input + ": another shape, dtype or device than recorded";
    case InputChange::Kind::kStaticAddress:
    case InputChange::Kind::kManagedAddress:
      return fmt::format("{} {}: address {:#x} recorded, {:#x} given",
                         change.kind == InputChange::Kind::kStaticAddress ? "static" : "managed",
                         input, change.recorded, change.given);
  }
  return input;
}

}  // namespace cgtree
