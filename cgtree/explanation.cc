// Names and sentences for skip reasons, mismatches and explanations.
#include "cgtree/explanation.h"

#include <fmt/format.h>

#include <iterator>

namespace cgtree {
namespace {

struct Row {
  std::string_view name;
  std::string_view explanation;
};

// In the order of SkipReason.
constexpr Row kRows[] = {
    {"disabled", "compiled with enabled = false"},
    {"no_graph_scope", "called while a NoGraph lives on this thread"},
    {"no_graphs", "the device has no graphs"},
    {"nested_call", "called inside another step function, whose recording includes it"},
    {"foreign_capture", "other code is capturing the stream, and its graph includes the work"},
    {"other_device", "an input lives on another device: copy it to the context's device first"},
    {"mutated_input",
     "the function writes into an input, and its OnMutatedInput forbids a graph: declare the input "
     "static, or choose kCopyBack"},
    {"overlapping_inputs",
     "two inputs share memory, the function writes into one of them, and a graph would work on a "
     "copy of one alone: declare both static, or pass tensors that lie apart"},
    {"capture_failed",
     "an earlier capture failed: the function synchronises, queries or allocates outside the pool"},
    {"static_changed",
     "static inputs have other addresses than recorded, and OnStaticChange::kThrow forbids it: "
     "keep them where they are, or let them be recorded again or copied"},
    {"too_small", "its graph has fewer nodes than CompileOptions::min_graph_nodes"},
    {"function_limit", "the function has as many recordings as CompileOptions::max_recordings"},
    {"context_limit", "the context has as many recordings as ContextOptions::max_recordings"},
    {"graph_bytes_limit",
     "the graphs of the context take as much memory as ContextOptions::max_graph_bytes"},
    {"pool_limit", "memory was short, and the recording's was needed elsewhere"},
    {"time_limit",
     "warming up and recording have taken as long as ContextOptions::max_recording_time"},
    {"frozen",
     "no recording fits, and nothing is recorded while the function is frozen: unfreeze() it"},
    {"dynamic_axis", "the size of an axis has varied, and AxisPolicy::kSkip is for that"},
    {"size_not_listed", "the size of an axis is not in the list of AxisPolicy::kAllowList"},
    {"size_limit",
     "an axis has had as many sizes as AxisOptions::max_sizes: allow more, pad them to buckets, or "
     "let AtMaxSizes::kEvict drop old ones"},
    {"above_largest_bucket", "an axis is larger than the largest of its buckets: add a larger one"},
    {"not_recorded",
     "no recording holds the sizes of the call, and CompileOptions::while_missing makes none: "
     "precapture() them"},
    {"too_much_padding",
     "padding would make the work larger than CompileOptions::max_waste times: add buckets"},
};
static_assert(std::size(kRows) == kSkipReasonCount);

}  // namespace

std::string_view name(SkipReason reason) noexcept {
  return kRows[static_cast<int>(reason)].name;
}

std::string_view explain(SkipReason reason) noexcept {
  return kRows[static_cast<int>(reason)].explanation;
}

std::string_view name(Mismatch::Kind kind) noexcept {
  switch (kind) {
    case Mismatch::Kind::kNone:
      return "none";
    case Mismatch::Kind::kUnusable:
      return "unusable";
    case Mismatch::Kind::kInputCount:
      return "input_count";
    case Mismatch::Kind::kKey:
      return "key";
    case Mismatch::Kind::kSignature:
      return "signature";
    case Mismatch::Kind::kStaticAddress:
      return "static_address";
    case Mismatch::Kind::kManagedAddress:
      return "managed_address";
    case Mismatch::Kind::kAlignment:
      return "alignment";
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
  if (mismatch.kind == Kind::kKey) {
    return fmt::format("key [{}] recorded, [{}] given", mismatch.recorded, mismatch.given);
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
    text += fmt::format("\n  {} '{}': {}", axis.is_of_key ? "key" : "axis", axis.name, axis.actual);
    if (axis.padded <= axis.actual) continue;
    text += fmt::format(", {} to {}", axis.is_of_key ? "rounded up" : "padded", axis.padded);
  }
  if (!explanation.detail.empty()) text += "\n  " + explanation.detail;
  for (const Mismatch& mismatch : explanation.mismatches)
    text += "\n  " + to_string(mismatch);
  for (const std::string& note : explanation.notes)
    text += "\n  " + note;
  return text;
}

}  // namespace cgtree
