// Names skip reasons.
#include "cgtree/values/explanation.h"

#include <iterator>

namespace cgtree {
namespace {

// In the order of SkipReason.
constexpr std::string_view kNames[] = {
    "disabled",          "no_graph_scope",       "no_graphs",
    "nested_call",       "foreign_capture",      "other_device",
    "other_partition",   "overlapping_inputs",   "capture_failed",
    "capture_disturbed", "keeps_tensor",         "static_changed",
    "function_limit",    "context_limit",        "graph_bytes_limit",
    "pool_limit",        "time_limit",           "frozen",
    "backs_off",         "dynamic_axis",         "size_not_listed",
    "size_limit",        "above_largest_bucket", "not_recorded",
    "too_much_padding",  "unsafe_padding"};
static_assert(std::size(kNames) == kSkipReasonCount);

}  // namespace

std::string_view name(SkipReason reason) noexcept {
  return kNames[static_cast<int>(reason)];
}

}  // namespace cgtree
