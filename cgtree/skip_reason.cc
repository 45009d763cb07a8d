// Names and explanations of skip reasons.
#include "cgtree/skip_reason.h"

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
    {"dynamic_axis", "the size of an axis has varied, and AxisPolicy::kSkip is for that"},
    {"size_not_listed", "the size of an axis is not in the list of AxisPolicy::kAllowList"},
    {"size_limit",
     "an axis has had as many sizes as AxisOptions::max_sizes: allow more, pad them to buckets, or "
     "let AtMaxSizes::kEvict drop old ones"},
    {"above_largest_bucket", "an axis is larger than the largest of its buckets: add a larger one"},
    {"not_recorded",
     "no recording holds the sizes of the call, and CompileOptions::while_missing makes none: "
     "precapture() them"},
};
static_assert(std::size(kRows) == kSkipReasonCount);

}  // namespace

std::string_view name(SkipReason reason) noexcept {
  return kRows[static_cast<int>(reason)].name;
}

std::string_view explain(SkipReason reason) noexcept {
  return kRows[static_cast<int>(reason)].explanation;
}

}  // namespace cgtree
