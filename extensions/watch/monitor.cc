// Reads the state of a context for monitors.
#include "extensions/watch/monitor.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "cgtree/tree/engine.h"
#include "extensions/watch/event_log.h"
#include "extensions/watch/snapshot.h"

namespace cgtree {

void watch_progress(Context& context, std::shared_ptr<ProgressWatch> watch) {
  Engine& engine = *context.share_engine();
  const Entry entry(engine.gate);
  event_log_of(engine).watch_progress(std::move(watch));
}

std::string snapshot_json(const Context& context) {
  return snapshot_json(*context.share_engine());
}

ContextMetrics metrics_of(const Context& context) {
  const Engine& engine = *context.share_engine();
  ContextMetrics metrics;
  metrics.device = to_string(engine.memory->device());
  metrics.context = engine.options.name.empty() ? metrics.device : engine.options.name;
  metrics.stats = engine.stats();
  const EventLog& log = event_log_of(engine);
  const auto times = log.timer().times();
  const auto causes = log.causes().by_name();
  auto scope_times = log.timer().scope_times();
  for (const auto& [name, totals] : engine.tree.totals()) {
    FunctionMetrics& one =
        metrics.functions.emplace_back(FunctionMetrics{name, totals.stats, {}, {}, {}, {}});
    if (const auto found = times.find(name); found != times.end()) one.replay_times = found->second;
    one.scope_times = std::move(scope_times[name]);
    if (const auto found = causes.find(name); found != causes.end()) one.causes = found->second;
    for (const auto& [axis, sums] : totals.axes)
      one.axes.push_back({axis, sums});
  }
  std::ranges::copy(engine.tree.spent.record_times, metrics.record_times.begin());
  metrics.record_time = engine.tree.spent.record_time;
  for (const Region region : {Region::kOutput, Region::kScratch, Region::kEager}) {
    const Pool& pool = engine.memory->pool(region);
    const PoolStatistics statistics = pool.statistics();
    metrics.regions.push_back({pool.options().name, statistics.reserved_bytes.current,
                               statistics.allocated_bytes.current});
  }
  return metrics;
}

std::string metrics_text(const Context& context) {
  const ContextMetrics all = metrics_of(context);
  return metrics_text(std::span(&all, 1));
}

std::string metrics_text(std::span<const Context* const> contexts) {
  std::vector<ContextMetrics> all;
  for (const Context* const context : contexts)
    all.push_back(metrics_of(*context));
  return metrics_text(std::span<const ContextMetrics>(all));
}

}  // namespace cgtree
