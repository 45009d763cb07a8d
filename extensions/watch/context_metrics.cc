// Reads metrics and verified replays of a context.
#include "extensions/watch/context_metrics.h"

#include <algorithm>
#include <map>
#include <utility>

#include "extensions/watch/event_log.h"

namespace cgtree {

std::map<std::string, ReplayTimes, std::less<>> replay_times_of(const TreeManager& context) {
  return dynamic_cast<const EventLog&>(*context.workings().events).timer().times();
}

std::map<std::uint32_t, FunctionCauses> causes_of(const TreeManager& context) {
  return dynamic_cast<const EventLog&>(*context.workings().events).causes().all();
}

ContextMetrics metrics_of(const TreeManager& context) {
  const Workings& workings = context.workings();
  ContextMetrics metrics;
  metrics.device = to_string(workings.memory->device());
  metrics.context = workings.options.name.empty() ? metrics.device : workings.options.name;
  metrics.stats = context.stats();
  const auto times = replay_times_of(context);
  const auto causes = dynamic_cast<const EventLog&>(*workings.events).causes().by_name();
  auto scope_times =
      dynamic_cast<const EventLog&>(*context.workings().events).timer().scope_times();
  for (const auto& [name, totals] : workings.tree.totals()) {
    FunctionMetrics& one =
        metrics.functions.emplace_back(FunctionMetrics{name, totals.stats, {}, {}, {}, {}});
    if (const auto found = times.find(name); found != times.end()) one.replay_times = found->second;
    one.scope_times = std::move(scope_times[name]);
    if (const auto found = causes.find(name); found != causes.end()) one.causes = found->second;
    for (const auto& [axis, sums] : totals.axes)
      one.axes.push_back({axis, sums});
  }
  std::ranges::copy(workings.tree.spent.record_times, metrics.record_times.begin());
  metrics.record_time = workings.tree.spent.record_time;
  for (const Region region : {Region::kOutput, Region::kScratch, Region::kEager}) {
    const Pool& pool = workings.memory->pool(region);
    const PoolStatistics statistics = pool.statistics();
    metrics.regions.push_back({pool.options().name, statistics.reserved_bytes.current,
                               statistics.allocated_bytes.current});
  }
  return metrics;
}

Verification verification_of(const TreeManager& context) {
  const Workings& workings = context.workings();
  const ContextOptions& options = workings.options;
  std::map<std::uint32_t, FunctionVerification> by_id;
  const auto add_function = [&](const FunctionState& function) {
    const std::size_t first = std::max(options.verify_first, function.options.verify_first);
    if (options.verify_every == 0 && first == 0) return;
    const FunctionStats stats = workings.tree.stats_of(function);
    FunctionVerification& one = by_id[function.id];
    one.function = function.name;
    one.first = first;
    one.verified = stats.verified;
    one.differed = stats.differed;
    one.unverified = stats.unverified;
    one.tensors = function.verified_tensors;
  };
  const auto add_node = [&](const Node& node) {
    const auto found = by_id.find(node.function->id);
    if (found == by_id.end()) return;
    const RecordingCosts& costs = node.recording.costs;
    ++(costs.verified > 0     ? found->second.verified_recordings
       : costs.unverified > 0 ? found->second.unverified_recordings
                              : found->second.waiting_recordings);
  };
  workings.tree.visit(add_function, add_node);
  Verification all{options.verify_every, {}};
  for (auto& [id, one] : by_id)
    all.functions.push_back(std::move(one));
  return all;
}

}  // namespace cgtree
