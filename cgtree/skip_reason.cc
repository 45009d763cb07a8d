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
    {"no_graphs", "the device knows no graphs"},
    {"nested_call", "called inside another step function, whose recording includes it"},
    {"foreign_capture",
     "the stream is being captured by someone else, whose graph includes the work"},
    {"other_device", "an input lives on another device: copy it to the context's device first"},
    {"mutated_input",
     "the function writes into an eager input: declare it static, or pass an output of an earlier "
     "call"},
    {"capture_failed",
     "an earlier capture failed: the function synchronises, queries or allocates outside the pool"},
    {"function_limit", "the function has as many recordings as CompileOptions::max_recordings"},
    {"context_limit", "the context has as many recordings as ContextOptions::max_recordings"},
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
