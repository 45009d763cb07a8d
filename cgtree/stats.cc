// Prints stats.
#include "cgtree/stats.h"

#include <numeric>

namespace cgtree {

std::uint64_t FunctionStats::skipped() const noexcept {
  return std::accumulate(skips.begin(), skips.end(), std::uint64_t{0});
}

std::string to_string(const FunctionStats& stats) {
  std::string text =
      fmt::format("calls {}  warm-ups {}  recordings {}  replays {}  skips {}", stats.calls,
                  stats.warm_ups, stats.recordings, stats.replays, stats.skipped());
  const char* separator = " (";
  for (int i = 0; i < kSkipReasonCount; ++i) {
    if (stats.skips[i] == 0) continue;
    text += fmt::format("{}{} {}", separator, name(static_cast<SkipReason>(i)), stats.skips[i]);
    separator = ", ";
  }
  if (stats.skipped() > 0) text += ')';
  if (stats.evictions > 0) text += fmt::format("  evictions {}", stats.evictions);
  if (stats.failures > 0) text += fmt::format("  failures {}", stats.failures);
  return text;
}

std::string to_string(const ContextStats& stats) {
  return fmt::format(
      "{}\ngenerations {}  restores {}  root patches {}  live outputs {}  pool {} bytes, {} live",
      to_string(static_cast<const FunctionStats&>(stats)), stats.generations, stats.restores,
      stats.root_patches, stats.live_outputs, stats.pool_reserved_bytes, stats.pool_live_bytes);
}

}  // namespace cgtree
