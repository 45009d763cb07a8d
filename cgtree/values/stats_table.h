// The fields of statistics by name, for code that converts or adds them: JSON, Python, sums. A
// field that is added here appears in all of these.
#pragma once

#include <cstdint>
#include <string_view>

#include "cgtree/values/explanation.h"
#include "cgtree/values/stats.h"

namespace cgtree {

// A counter with its name in JSON and Python.
template <typename Stats>
struct StatsField {
  std::string_view name;  // ends with a 0
  std::uint64_t Stats::*value;
};

// All counters of a function except the arrays `skips` and `unverified`.
inline constexpr StatsField<FunctionStats> kFunctionStats[] = {
    {"calls", &FunctionStats::calls},
    {"warm_ups", &FunctionStats::warm_ups},
    {"recordings", &FunctionStats::recordings},
    {"replays", &FunctionStats::replays},
    {"failures", &FunctionStats::failures},
    {"evictions", &FunctionStats::evictions},
    {"kept_recordings", &FunctionStats::kept_recordings},
    {"frozen", &FunctionStats::frozen},
    {"verified", &FunctionStats::verified},
    {"differed", &FunctionStats::differed}};

// The further counters of a context, except ContextStats::recording_time, which is a duration.
inline constexpr StatsField<ContextStats> kContextStats[] = {
    {"generations", &ContextStats::generations},
    {"restores", &ContextStats::restores},
    {"root_patches", &ContextStats::root_patches},
    {"graph_bytes", &ContextStats::graph_bytes},
    {"live_outputs", &ContextStats::live_outputs},
    {"pool_reserved_bytes", &ContextStats::pool_reserved_bytes},
    {"pool_live_bytes", &ContextStats::pool_live_bytes}};

// The next two call visit(reason, count) for each reason that occurred.
template <typename Visit>
void for_each_skip(const FunctionStats& stats, Visit&& visit) {
  for (int i = 0; i < kSkipReasonCount; ++i) {
    if (stats.skips[i] > 0) visit(static_cast<SkipReason>(i), stats.skips[i]);
  }
}
template <typename Visit>
void for_each_unverified(const FunctionStats& stats, Visit&& visit) {
  for (int i = 0; i < kUnverifiedReasonCount; ++i) {
    if (stats.unverified[i] > 0) visit(static_cast<UnverifiedReason>(i), stats.unverified[i]);
  }
}

}  // namespace cgtree
