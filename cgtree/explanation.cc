// Names and sentences for explanations and mismatches.
#include "cgtree/explanation.h"

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

std::string to_string(const Mismatch& mismatch) {
  using Kind = Mismatch::Kind;
  if (mismatch.kind == Kind::kFootprint) {
    return fmt::format("{} is held, where it writes {}", mismatch.given, mismatch.recorded);
  }
  if (mismatch.kind == Kind::kInputCount) {
    return fmt::format("{} inputs recorded, {} given", mismatch.recorded, mismatch.given);
  }
  const std::string input =
      fmt::format("input {}{}", mismatch.input,
                  mismatch.input_name.empty() ? "" : fmt::format(" '{}'", mismatch.input_name));
  if (mismatch.kind == Kind::kOverlap) {
    return fmt::format("{} shares memory with {}: {}", input, mismatch.recorded, mismatch.given);
  }
  const char* const treatment = mismatch.kind == Kind::kStaticAddress    ? "static "
                                : mismatch.kind == Kind::kManagedAddress ? "managed "
                                                                         : "";
  return fmt::format("{}{}: {} recorded, {} given", treatment, input, mismatch.recorded,
                     mismatch.given);
}

std::string_view name(Explanation::Outcome outcome) noexcept {
  switch (outcome) {
    case Explanation::Outcome::kReplay:
      return "replay";
    case Explanation::Outcome::kRecord:
      return "record";
    case Explanation::Outcome::kWarmUp:
      return "warm_up";
    case Explanation::Outcome::kRunEagerly:
      return "run_eagerly";
    case Explanation::Outcome::kThrow:
      return "throw";
  }
  return "unknown";
}

std::string to_string(const Explanation& explanation) {
  std::string text(name(explanation.outcome));
  if (explanation.outcome == Explanation::Outcome::kReplay) {
    text += fmt::format(" node {}", explanation.node);
  }
  if (explanation.skip_reason) {
    text +=
        fmt::format(" ({}): {}", name(*explanation.skip_reason), explain(*explanation.skip_reason));
  }
  for (const AxisInUse& axis : explanation.axes) {
    text += fmt::format("\n  axis '{}': {}", axis.name, axis.actual);
    if (axis.padded > axis.actual) text += fmt::format(", padded to {}", axis.padded);
  }
  if (!explanation.detail.empty()) text += "\n  " + explanation.detail;
  for (const Mismatch& mismatch : explanation.mismatches)
    text += "\n  " + to_string(mismatch);
  for (const std::string& note : explanation.notes)
    text += "\n  " + note;
  return text;
}

}  // namespace cgtree
