// Writes what a snapshot says of a function: counts, dynamic axes and verification.
#include <nlohmann/json.hpp>

#include "cgtree/stats_table.h"
#include "cgtree/verification.h"
#include "cgtree/watch/snapshot_parts.h"

namespace cgtree {
namespace {

using json = nlohmann::ordered_json;

std::string_view text_of(AxisPolicy policy) {
  switch (policy) {
    case AxisPolicy::kExact:
      return "exact";
    case AxisPolicy::kAllowList:
      return "allow_list";
    case AxisPolicy::kSkip:
      return "skip";
    case AxisPolicy::kBuckets:
      return "buckets";
    case AxisPolicy::kMultiples:
      return "multiples";
    case AxisPolicy::kPowersOfTwo:
      return "powers_of_two";
    case AxisPolicy::kLearned:
      return "learned";
  }
  return "unknown";
}

json axis_of(const AxisPlan& plan, std::size_t number) {
  const AxisRule& rule = plan.rule(number);
  const SizeHistogram& histogram = plan.histogram(number);
  const SizeSums sums = plan.size_sums(number);
  const AxisOptions& options = rule.options();
  json axis = {
      {"axis", options.name}, {"of_key", rule.is_of_key()}, {"policy", text_of(options.policy)}};
  if (!options.sizes.empty()) {
    axis[options.policy == AxisPolicy::kAllowList ? "allowed" : "buckets"] = options.sizes;
  }
  if (options.policy == AxisPolicy::kMultiples) axis["multiple_of"] = options.multiple_of;
  if (options.policy == AxisPolicy::kMultiples || options.policy == AxisPolicy::kPowersOfTwo)
    axis["largest"] = options.largest;
  if (options.max_sizes != SIZE_MAX) axis["max_sizes"] = options.max_sizes;
  json counts = json::array();
  for (const SizeCount& entry : histogram.counts())
    counts.push_back({entry.size, entry.count});
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

}  // namespace

json function_json(const FunctionState& function, const FunctionStats& stats) {
  json skips = json::object();
  for_each_skip(stats, [&](SkipReason reason, std::uint64_t count) {
    skips[std::string(name(reason))] = count;
  });
  json unverified = json::object();
  for_each_unverified(stats, [&](UnverifiedReason reason, std::uint64_t count) {
    unverified[std::string(name(reason))] = count;
  });
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
                {"skips", std::move(skips)},
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
  if (!function.capture_failure.empty()) entry["capture_failure"] = function.capture_failure;
  return entry;
}

json replay_times_json(const std::string& function, const ReplayTimes& times) {
  return {{"function", function},
          {"count", times.count},
          {"found_idle", times.found_idle},
          {"device_ns", times.device.count()},
          {"device_ns_min", times.device_min.count()},
          {"device_ns_max", times.device_max.count()},
          {"host_ns", times.host.count()},
          {"eager_ns", times.eager.count()}};
}

}  // namespace cgtree
