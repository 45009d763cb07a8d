// Tells the state of a Context: snapshot, metrics and verified replays.
#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "cgtree/context.h"
#include "cgtree/tree/engine.h"
#include "cgtree/values/metrics.h"
#include "cgtree/values/verification.h"
#include "extensions/watch/event_log.h"
#include "extensions/watch/snapshot.h"

namespace cgtree {

void Context::watch_progress(std::shared_ptr<ProgressWatch> watch) {
  const Entry entry(engine_->gate);
  event_log_of(*engine_).watch_progress(std::move(watch));
}

std::string Context::snapshot_json() const {
  return cgtree::snapshot_json(*engine_);
}

ContextMetrics Context::metrics() const {
  const Engine& engine = *engine_;
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

Verification Context::verification() const {
  const Engine& engine = *engine_;
  const ContextOptions& options = engine.options;
  std::map<std::uint32_t, FunctionVerification> by_id;
  const auto add_function = [&](const FunctionState& function) {
    const std::size_t first = std::max(options.verify_first, function.options.verify_first);
    if (options.verify_every == 0 && first == 0) return;
    const FunctionStats stats = engine.tree.stats_of(function);
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
  engine.tree.visit(add_function, add_node);
  Verification all{options.verify_every, {}};
  for (auto& [id, one] : by_id)
    all.functions.push_back(std::move(one));
  return all;
}

std::string Context::metrics_text() const {
  const Context* const self = this;
  return cgtree::metrics_text(std::span(&self, 1));
}

std::string metrics_text(std::span<const Context* const> contexts) {
  std::vector<ContextMetrics> all;
  for (const Context* const context : contexts)
    all.push_back(context->metrics());
  return metrics_text(std::span<const ContextMetrics>(all));
}

}  // namespace cgtree
