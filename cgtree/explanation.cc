// Explanations as text.
#include "cgtree/explanation.h"

#include <fmt/format.h>

namespace cgtree {

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
    text += fmt::format("\n  axis '{}': {}", axis.name, axis.given);
    if (axis.seen > axis.given) text += fmt::format(", padded to {}", axis.seen);
  }
  if (!explanation.why_not.empty()) text += "\n  " + explanation.why_not;
  for (const Change& change : explanation.cause.changes)
    text += "\n  " + to_string(change);
  for (const std::string& note : explanation.notes)
    text += "\n  " + note;
  return text;
}

}  // namespace cgtree
