// Writes the functions of a snapshot: counts, dynamic axes and verification.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/format.h"
#include "cgtree/values/stats_table.h"
#include "extensions/verify/verification.h"
#include "extensions/watch/call_causes.h"
#include "extensions/watch/event_record.h"
#include "extensions/watch/option_table.h"
#include "extensions/watch/snapshot.h"
#include "extensions/watch/spelling.h"

namespace cgtree {
namespace {

using json = nlohmann::ordered_json;

json axis_of(const AxisPlan& plan, std::size_t number) {
  const AxisRule& rule = plan.rule(number);
  const Histogram<std::int64_t>& histogram = plan.histogram(number);
  const SizeSums sums = plan.size_sums(number);
  const AxisOptions& options = rule.options();
  json axis = {{"axis", options.name},
               {"of_key", rule.is_of_key()},
               {"policy", kChoices<AxisPolicy>[static_cast<std::size_t>(options.policy)].python}};
  if (!options.sizes.empty()) {
    axis[options.policy == AxisPolicy::kAllowList ? "allowed" : "buckets"] = options.sizes;
  }
  if (options.policy == AxisPolicy::kMultiples) axis["multiple_of"] = options.multiple_of;
  if (options.policy == AxisPolicy::kMultiples || options.policy == AxisPolicy::kPowersOfTwo)
    axis["largest"] = options.largest;
  if (options.max_sizes != SIZE_MAX) axis["max_sizes"] = options.max_sizes;
  json counts = json::array();
  for (const auto& [size, count] : histogram.counts())
    counts.push_back({size, count});
  axis["sizes"] = std::move(counts);
  axis["actual"] = sums.actual;
  axis["padded"] = sums.padded;
  axis["uncounted"] = histogram.uncounted();
  return axis;
}

json axes_of(const FunctionState& function) {
  json axes = json::array();
  for (std::size_t i = 0; function.axes != nullptr && i < function.axes->size(); ++i)
    axes.push_back(axis_of(*function.axes, i));
  return axes;
}

// Returns the counts that are not 0, by the names of the enumeration.
template <typename Enum, std::size_t kCount>
json counts_of(const std::array<std::uint64_t, kCount>& counts) {
  json all = json::object();
  for (std::size_t i = 0; i < kCount; ++i)
    if (counts[i] > 0) all[std::string(name(static_cast<Enum>(i)))] = counts[i];
  return all;
}

// Returns the reasons why calls did not replay and the remedies, in words: "reason", "text",
// "calls" and "advice" of each reason. Recordings have their own.
json why_of(const FunctionState& function, const FunctionStats& stats,
            const FunctionCauses& causes) {
  json list = json::array();
  const auto add = [&](std::string_view reason, std::string_view text, std::uint64_t calls,
                       std::string_view advice) {
    list.push_back({{"reason", reason},
                    {"text", text},
                    {"calls", calls},
                    {"advice", spelled(advice, Spelling::kNames)}});
  };
  if (stats.failures > 0) {
    const Explanation why{.outcome = Outcome::kThrow, .last_failure = causes.last_failure};
    add("failure", difference(why), stats.failures, advice(why));
  }
  const std::uint64_t lost = stats.warm_ups - std::min(stats.recordings, stats.warm_ups);
  if (lost > 1 && causes.changed.kind != Mismatch::Kind::kNone) {
    Explanation why{.outcome = Outcome::kWarmUp};
    why.changed = causes.changed;
    if (function.axes != nullptr) why.axes.resize(function.axes->size());
    const Cause cause = cause_of(causes.changed.kind);
    add(name(cause), str_format("{}: {}", explain(cause), sides_of_change(causes.changed)), lost,
        advice(why));
  }
  for_each_skip(stats, [&](SkipReason reason, std::uint64_t count) {
    add(name(reason), explain(reason), count, advice(reason));
  });
  return list;
}

}  // namespace

json function_json(const FunctionState& function, const FunctionStats& stats,
                   const FunctionCauses& causes) {
  json unverified = counts_of<UnverifiedReason>(stats.unverified);
  json entry = {{"id", function.id},
                {"name", function.name},
                {"calls", stats.calls},
                {"warm_ups", stats.warm_ups},
                {"recordings", stats.recordings},
                {"replays", stats.replays},
                {"failures", stats.failures},
                {"evictions", stats.evictions},
                {"kept_recordings", stats.kept_recordings},
                {"frozen", stats.frozen > 0},
                {"skips", counts_of<SkipReason>(stats.skips)},
                {"why", why_of(function, stats, causes)},
                {"warm_up_causes", counts_of<Cause>(causes.warm_ups)},
                {"recording_causes", counts_of<Cause>(causes.recordings)},
                {"axes", axes_of(function)}};
  if (stats.verified > 0 || !unverified.empty()) {
    json tensors = json::array();
    for (const VerifiedTensor& tensor : function.verified_tensors) {
      tensors.push_back({{"what", tensor.what},
                         {"tolerance", tensor.tolerance},
                         {"largest_difference", tensor.largest}});
    }
    entry["verification"] = {{"verified", stats.verified},
                             {"differed", stats.differed},
                             {"left_out", std::move(unverified)},
                             {"compared", std::move(tensors)}};
  }
  if (causes.changed.kind != Mismatch::Kind::kNone) entry["changed"] = changed_json(causes.changed);
  if (stats.failures > 0) entry["last_failure"] = causes.last_failure;
  if (!function.capture_failure.empty()) entry["capture_failure"] = function.capture_failure;
  return entry;
}

}  // namespace cgtree
